// SPDX-License-Identifier: Apache-2.0

// Server is a small inference server. Its scheduler is Go; Quire keeps K and V and computes
// attention. The device can change while the server runs.
//
//	go run . --weights stories260K.bin --tokenizer tok512.bin
//	curl -N localhost:8080/v1/completions \
//	    -d '{"prompt": "Once upon", "max_tokens": 40, "stream": true}'
//	curl -X POST 'localhost:8080/admin/migrate?device=vulkan&blocks=128'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

type options struct {
	address, weights, tokenizer, device string
	blocks, blockTokens                 int
}

func parse() options {
	var o options
	flag.StringVar(&o.address, "address", "127.0.0.1:8080", "where to listen")
	flag.StringVar(&o.weights, "weights", "", "a llama2.c checkpoint; without it a seeded model")
	flag.StringVar(&o.tokenizer, "tokenizer", "",
		"its tokenizer; without it prompts and texts are token ids")
	flag.StringVar(&o.device, "device", "cpu", "Quire's backend")
	flag.IntVar(&o.blocks, "pool-blocks", 256, "blocks in the pool")
	flag.IntVar(&o.blockTokens, "block-tokens", 16, "tokens per block")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: server [OPTIONS]")
		flag.PrintDefaults()
		fmt.Fprintln(flag.CommandLine.Output(),
			"\nexample: server --weights stories260K.bin --tokenizer tok512.bin")
	}
	flag.Parse()
	if flag.NArg() != 0 {
		fmt.Fprintf(os.Stderr, "server: unknown argument %q; see --help\n", flag.Arg(0))
		os.Exit(2)
	}
	return o
}

func open(o options) (*server, error) {
	model := seededCheckpoint(1)
	var words *tokenizer
	var err error
	if o.weights != "" {
		if model, err = loadCheckpoint(o.weights); err != nil {
			return nil, err
		}
	}
	if o.tokenizer != "" {
		if words, err = loadTokenizer(o.tokenizer, model.vocab); err != nil {
			return nil, err
		}
	}
	if o.blockTokens < 1 {
		return nil, errors.New("block-tokens must be a power of two")
	}
	e, err := newEngine(model, o.device, o.blocks, o.blockTokens)
	if err != nil {
		return nil, err
	}
	return &server{e, words}, nil
}

func main() {
	o := parse()
	s, err := open(o)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", listener.Addr())
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-stop.Done()
		cancel()            // a second signal ends the process
		s.engine.shutdown() // ends the texts in progress
		ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		web.Shutdown(ending)
	}()
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-ended // wait for Shutdown to send the last answers
}
