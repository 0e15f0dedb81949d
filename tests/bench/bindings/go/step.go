// SPDX-License-Identifier: Apache-2.0

// step: the step of step.c, as an engine in Go does it.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"quire"
)

const (
	sequences = 256
	rowBlocks = 256
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	instance, err := quire.NewInstance(quire.InstanceOptions{})
	must(err)
	cache, err := instance.NewCache(quire.CacheOptions{
		Groups: []quire.Group{{Layers: 32, KVHeads: 8, HeadDim: 128}},
		Blocks: sequences*rowBlocks + 1})
	must(err)
	batch, err := cache.NewBatch(quire.BatchOptions{MaxRows: sequences, MaxBlocksPerRow: rowBlocks,
		MaxQueryTokens: sequences, Views: quire.BlockTable | quire.Slots})
	must(err)
	chats := make([]quire.Sequence, sequences)
	for i := range chats {
		chats[i], err = cache.NewSequence(quire.SequenceOptions{})
		must(err)
	}
	items, tokens := make([]quire.Item, sequences), make([]uint32, sequences)
	results := make([]quire.Result, sequences)
	number := uint32(0)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		count, err := strconv.Atoi(lines.Text())
		must(err)
		start := time.Now()
		for i := 0; i < count; i++ {
			for row := range items {
				tokens[row] = uint32(row)*4096 + number
				item := &items[row]
				item.Sequence = chats[row].Handle()
				item.TokenOffset = uint32(row)
				item.TokenCount = 1
			}
			step, err := cache.BeginCommit(quire.StepOptions{}, batch, items, tokens, results)
			must(err)
			must(step.Finish())
			number++
		}
		fmt.Printf("%.1f\n", float64(time.Since(start).Nanoseconds())/float64(count))
	}
}
