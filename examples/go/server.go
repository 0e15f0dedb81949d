// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"
)

type server struct {
	engine    *engine
	tokenizer *tokenizer // nil: prompts and texts are token ids
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/completions", s.completions)
	mux.HandleFunc("/admin/migrate", s.migrate)
	mux.HandleFunc("/metrics", s.metrics)
	mux.HandleFunc("/health", func(w http.ResponseWriter, r *http.Request) {
		if err := s.engine.health(); err != nil {
			refuse(w, http.StatusServiceUnavailable, err.Error())
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

func failure(status int, message string) interface{} {
	return map[string]interface{}{"error": map[string]interface{}{
		"message": message, "code": status}}
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(failure(status, message))
}

// takesPost refuses other methods, and requests that come from web pages.
func takesPost(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "use POST")
		return false
	}
	if r.Header.Get("Origin") != "" {
		refuse(w, http.StatusForbidden, "requests from web pages are refused")
		return false
	}
	return true
}

// completion is a request body: OpenAI's legacy completions, with one greedy text. Other fields are
// refused.
type completion struct {
	Prompt    json.RawMessage `json:"prompt"` // a text, or token ids
	MaxTokens *int            `json:"max_tokens"`
	Stream    bool            `json:"stream"`
}

func (s *server) promptOf(raw json.RawMessage) ([]uint32, error) {
	var ids []uint32
	if json.Unmarshal(raw, &ids) == nil && len(ids) > 0 {
		for _, id := range ids {
			if int(id) >= s.engine.model.vocab {
				return nil, fmt.Errorf("prompt: no token %d: the vocabulary has %d", id,
					s.engine.model.vocab)
			}
		}
		return ids, nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil, errors.New("prompt must be a string or a non-empty list of token ids")
	}
	if s.tokenizer == nil {
		return nil, errors.New("prompt: this server has no tokenizer: give a list of token ids")
	}
	if most := s.engine.model.seqLen; !s.tokenizer.fits(text, most) {
		return nil, fmt.Errorf("prompt: %d bytes do not fit into %d tokens", len(text), most)
	}
	return s.tokenizer.encode(text), nil
}

// read decodes a body; the status says what is wrong with it.
func read(body io.Reader) (asked completion, status int, err error) {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&asked)
	if err == nil && decoder.More() {
		err = errors.New("there is more after the JSON object")
	}
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return asked, http.StatusOK, nil
	case errors.As(err, &large):
		return asked, http.StatusRequestEntityTooLarge,
			fmt.Errorf("the body is larger than %d bytes", large.Limit)
	case errors.As(err, &kind):
		err = fmt.Errorf("%s: %s is the wrong type", kind.Field, kind.Value)
	}
	return asked, http.StatusBadRequest,
		fmt.Errorf("the body must be a JSON object with prompt, max_tokens and stream: %w", err)
}

// fits says why a text can never be served, or returns nil.
func (s *server) fits(prompt, count int) error {
	most := s.engine.model.seqLen
	if prompt >= most {
		return fmt.Errorf("prompt has %d tokens: the model takes %d, with at least one to generate",
			prompt, most)
	}
	if count < 1 || count > most-prompt {
		return fmt.Errorf("max_tokens is %d: after a prompt of %d tokens it may be 1 to %d", count,
			prompt, most-prompt)
	}
	room, err := s.engine.room()
	if err == nil && prompt+count-1 > room {
		err = fmt.Errorf("prompt and max_tokens are %d tokens; the pool holds %d", prompt+count, room)
	}
	return err
}

func (s *server) completions(w http.ResponseWriter, r *http.Request) {
	if !takesPost(w, r) {
		return
	}
	asked, status, err := read(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		refuse(w, status, err.Error())
		return
	}
	prompt, err := s.promptOf(asked.Prompt)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	count := 16
	if asked.MaxTokens != nil {
		count = *asked.MaxTokens
	}
	if err := s.fits(len(prompt), count); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	events, err := s.engine.submit(r.Context(), prompt, len(prompt)+count)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if asked.Stream {
		s.stream(w, r, prompt, events)
	} else {
		s.whole(w, r, prompt, events)
	}
}

func choice(text string, reason interface{}, usage interface{}) map[string]interface{} {
	answer := map[string]interface{}{"object": "text_completion", "choices": []interface{}{
		map[string]interface{}{"index": 0, "text": text, "finish_reason": reason}}}
	if usage != nil {
		answer["usage"] = usage
	}
	return answer
}

func usage(prompt, completion int) map[string]int {
	return map[string]int{"prompt_tokens": prompt, "completion_tokens": completion,
		"total_tokens": prompt + completion}
}

// next waits for the text's next event.
func (s *server) next(r *http.Request, events <-chan event) event {
	select {
	case e := <-events:
		return e
	case <-r.Context().Done():
		return event{err: r.Context().Err()}
	case <-s.engine.done:
	}
	select {
	case e := <-events: // sent before the engine ended
		return e
	default:
		return event{err: errStopped}
	}
}

func (s *server) whole(w http.ResponseWriter, r *http.Request, prompt []uint32,
	events <-chan event) {
	text, before, count := "", prompt[len(prompt)-1], 0
	for {
		e := s.next(r, events)
		if e.err != nil {
			refuse(w, http.StatusServiceUnavailable, e.err.Error())
			return
		}
		if e.reason != "" {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(choice(text, e.reason, usage(len(prompt), count)))
			return
		}
		text += s.tokenizer.text(before, e.token)
		before, count = e.token, count+1
	}
}

// cut splits off trailing bytes that may be the beginning of a character.
func cut(text string) (whole, rest string) {
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		at := len(text) - back
		if utf8.RuneStart(text[at]) {
			if !utf8.FullRuneInString(text[at:]) {
				return text[:at], text[at:]
			}
			break
		}
	}
	return text, ""
}

// stream sends server-sent events. When the client leaves, the request's context ends and the
// engine gives the request's blocks back.
func (s *server) stream(w http.ResponseWriter, r *http.Request, prompt []uint32,
	events <-chan event) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(data []byte) {
		fmt.Fprintf(w, "data: %s\n\n", data)
		if flusher, is := w.(http.Flusher); is {
			flusher.Flush()
		}
	}
	before, count, held := prompt[len(prompt)-1], 0, ""
	for {
		e := s.next(r, events)
		if r.Context().Err() != nil {
			return
		}
		if e.err != nil {
			data, _ := json.Marshal(failure(http.StatusServiceUnavailable, e.err.Error()))
			send(data)
			send([]byte("[DONE]"))
			return
		}
		if e.reason != "" {
			data, _ := json.Marshal(choice(held, e.reason, usage(len(prompt), count)))
			send(data)
			send([]byte("[DONE]"))
			return
		}
		text := ""
		text, held = cut(held + s.tokenizer.text(before, e.token))
		data, _ := json.Marshal(choice(text, nil, nil))
		send(data)
		before, count = e.token, count+1
	}
}

// migrate moves the live cache: POST /admin/migrate?device=vulkan&blocks=128
func (s *server) migrate(w http.ResponseWriter, r *http.Request) {
	if !takesPost(w, r) {
		return
	}
	blocks, err := strconv.Atoi(r.FormValue("blocks"))
	if err != nil || blocks < 2 || blocks > 1<<24 || r.FormValue("device") == "" {
		refuse(w, http.StatusBadRequest, "give device=NAME and blocks=NUMBER, at least 2")
		return
	}
	done, err := s.engine.migrate(r.FormValue("device"), blocks)
	if err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]interface{}{"blocks_moved": done.BlocksMoved,
		"blocks_dropped": done.BlocksDropped, "bytes_moved": done.BytesMoved})
}

// metrics serves Prometheus.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	stats, err := s.engine.cache.Stats()
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	c := s.engine.read()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, metric := range []struct {
		name, kind string
		value      interface{}
	}{
		{"requests_running", "gauge", c.Running},
		{"requests_waiting", "gauge", c.Waiting},
		{"requests_finished_total", "counter", c.Finished},
		{"requests_cancelled_total", "counter", c.Cancelled},
		{"tokens_sampled_total", "counter", c.Tokens},
		{"sequences", "gauge", stats.Sequences},
		{"prefix_cache_queries_total", "counter", stats.PrefixCacheQueries},
		{"prefix_cache_hits_total", "counter", stats.PrefixCacheHits},
		{"preemptions_total", "counter", stats.Preemptions},
		{"blocks_total", "gauge", stats.BlocksTotal},
		{"blocks_free", "gauge", stats.BlocksFree},
		{"blocks_cached", "gauge", stats.BlocksCached},
		{"blocks_held", "gauge", stats.BlocksHeld},
		{"migrations_total", "counter", stats.Migrations},
	} {
		fmt.Fprintf(w, "# TYPE quire_%s %s\nquire_%s %v\n", metric.name, metric.kind, metric.name,
			metric.value)
	}
	fmt.Fprintf(w, "# TYPE quire_device gauge\nquire_device{backend=%q} 1\n", c.Device)
}
