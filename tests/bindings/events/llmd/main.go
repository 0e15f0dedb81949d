// SPDX-License-Identifier: Apache-2.0

// llmd gives messages to llm-d's own decoder and index, and asks them what a prompt would find. It
// is built inside a checkout of llm-d-kv-cache (judges.py). Each line of its standard input is a
// message {topic, number, content} or a question {tokens, model}; a question is answered by the
// number of blocks.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents/engineadapter"
)

type line struct {
	Topic   string
	Number  uint64
	Content []byte
	Tokens  []uint32
	Model   string
}

// watched notes each message that it could not decode. The pool handles the messages of a pod in
// order, so the first message's events are in the index when the second one is decoded.
type watched struct {
	kvevents.EngineAdapter
	decoded chan error
}

func (w *watched) ParseMessage(
	m *kvevents.RawMessage) (string, string, kvevents.EventBatch, error) {
	pod, model, batch, err := w.EngineAdapter.ParseMessage(m)
	w.decoded <- err
	return pod, model, batch, err
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

var empty = []byte{0x93, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x90, 0} // [0.0, [], 0]

func main() {
	blockTokens := must(strconv.Atoi(os.Args[1]))
	ctx := context.Background()
	config := kvblock.DefaultInMemoryIndexConfig()
	index := must(kvblock.NewInMemoryIndex(config))
	tokenizer := must(kvblock.NewChunkedTokenDatabase(
		&kvblock.TokenProcessorConfig{BlockSizeTokens: blockTokens}))
	adapter := &watched{engineadapter.NewVLLMAdapter(), make(chan error)}
	pool := kvevents.NewPool(&kvevents.Config{Concurrency: 1}, index, tokenizer, adapter)
	pool.Start(ctx)
	give := func(m *kvevents.RawMessage) {
		pool.AddTask(m)
		must(0, <-adapter.decoded)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var l line
		must(0, json.Unmarshal(lines.Bytes(), &l))
		if l.Content != nil {
			give(&kvevents.RawMessage{Topic: l.Topic, Sequence: l.Number, Payload: l.Content})
			give(&kvevents.RawMessage{Topic: l.Topic, Payload: empty})
			continue
		}
		keys := must(tokenizer.TokensToKVBlockKeys(kvblock.EmptyBlockHash, l.Tokens, l.Model, nil))
		found := 0
		if len(keys) != 0 {
			pods := must(index.Lookup(ctx, keys, nil))
			for found < len(keys) && len(pods[keys[found]]) != 0 {
				found++
			}
		}
		fmt.Println(found)
	}
}
