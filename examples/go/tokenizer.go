// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strconv"
)

// firstByte is the first token of a single byte, after <unk>, BOS and EOS.
const firstByte = 3

// tokenizer holds the pieces of a vocabulary. llama2.c's file has an int32, then for each token an
// f32 score, an int32 length, and its bytes.
type tokenizer struct {
	pieces []string
	scores []float32
	ids    map[string]uint32
	most   int // bytes of the longest piece
}

func loadTokenizer(path string, vocab int) (*tokenizer, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t := &tokenizer{ids: map[string]uint32{}}
	for at := 4; len(t.pieces) < vocab; {
		if len(content)-at < 8 {
			return nil, fmt.Errorf("%s is truncated", path)
		}
		score := math.Float32frombits(binary.LittleEndian.Uint32(content[at:]))
		length := int(binary.LittleEndian.Uint32(content[at+4:]))
		at += 8
		if length > len(content)-at {
			return nil, fmt.Errorf("%s is truncated", path)
		}
		piece := string(content[at : at+length])
		at += length
		t.ids[piece] = uint32(len(t.pieces))
		t.pieces, t.scores = append(t.pieces, piece), append(t.scores, score)
		if length > t.most {
			t.most = length
		}
	}
	if vocab < firstByte+256 {
		return nil, fmt.Errorf("%s: a vocabulary of %d is too small for the 256 byte tokens", path, vocab)
	}
	return t, nil
}

// fits is false for a text too long for this many tokens, which need not be encoded then.
func (t *tokenizer) fits(text string, tokens int) bool { return len(text) <= tokens*t.most }

// encode returns a text's tokens, after a BOS: its characters, of which the two that make the piece
// of the best score are merged, until none can be (byte-pair encoding, as llama2.c's tokenizer).
func (t *tokenizer) encode(text string) []uint32 {
	tokens := []uint32{bos}
	if text == "" {
		return tokens
	}
	for _, character := range " " + text {
		piece := string(character)
		if id, is := t.ids[piece]; is {
			tokens = append(tokens, id)
			continue
		}
		for _, b := range []byte(piece) {
			tokens = append(tokens, uint32(b)+firstByte)
		}
	}
	for t.merge(&tokens) {
	}
	return tokens
}

func (t *tokenizer) merge(tokens *[]uint32) bool {
	list := *tokens
	best, place, id := float32(math.Inf(-1)), -1, uint32(0)
	for i := 1; i+1 < len(list); i++ {
		joined, is := t.ids[t.pieces[list[i]]+t.pieces[list[i+1]]]
		if is && t.scores[joined] > best {
			best, place, id = t.scores[joined], i, joined
		}
	}
	if place < 0 {
		return false
	}
	list[place] = id
	*tokens = append(list[:place+1], list[place+2:]...)
	return true
}

// text returns what a token adds after the token `before`.
func (t *tokenizer) text(before, token uint32) string {
	if t == nil {
		return " " + strconv.Itoa(int(token))
	}
	piece := t.pieces[token]
	if before == bos && len(piece) > 0 && piece[0] == ' ' {
		piece = piece[1:]
	}
	if len(piece) == 6 && piece[:3] == "<0x" {
		if b, err := strconv.ParseUint(piece[3:5], 16, 8); err == nil {
			return string([]byte{byte(b)})
		}
	}
	return piece
}
