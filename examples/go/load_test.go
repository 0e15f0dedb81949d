// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// serve starts a server on loopback and returns its address.
func serve(t *testing.T, o options) string {
	t.Helper()
	s, err := open(o)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: s.handler()}
	go web.Serve(listener)
	t.Cleanup(func() {
		s.engine.shutdown()
		web.Close()
	})
	return "http://" + listener.Addr().String()
}

func post(t *testing.T, url string, body interface{}) (int, []byte) {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(url, "application/json", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, content
}

type answered struct {
	Choices []struct {
		Text   string
		Reason string `json:"finish_reason"`
	}
	Usage struct {
		Tokens int `json:"completion_tokens"`
	}
	Error interface{}
}

func text(t *testing.T, url string, prompt interface{}, count int) string {
	t.Helper()
	status, content := post(t, url+"/v1/completions",
		map[string]interface{}{"prompt": prompt, "max_tokens": count})
	var answer answered
	if status != http.StatusOK || json.Unmarshal(content, &answer) != nil {
		t.Fatalf("%d: %s", status, content)
	}
	return answer.Choices[0].Text
}

// streamed reads a text as it arrives; the client leaves after `leaveAt` tokens.
func streamed(url string, prompt []int, count, leaveAt int) (string, error) {
	ctx, leave := context.WithTimeout(context.Background(), time.Minute)
	defer leave()
	data, _ := json.Marshal(map[string]interface{}{"prompt": prompt, "max_tokens": count,
		"stream": true})
	asked, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions",
		bytes.NewReader(data))
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(asked)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	whole := ""
	lines := bufio.NewScanner(answer.Body)
	for tokens := 0; lines.Scan(); {
		line := strings.TrimPrefix(lines.Text(), "data: ")
		if line == "" {
			continue
		}
		if line == "[DONE]" {
			return whole, nil
		}
		var answer answered
		if err := json.Unmarshal([]byte(line), &answer); err != nil || answer.Error != nil {
			return "", fmt.Errorf("%s: %v", line, err)
		}
		whole += answer.Choices[0].Text
		if tokens++; tokens == leaveAt {
			return whole, nil
		}
	}
	return "", fmt.Errorf("the stream ended early: %v", lines.Err())
}

func metrics(t *testing.T, url string) map[string]float64 {
	t.Helper()
	answer, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) == 2 {
			values[words[0]], _ = strconv.ParseFloat(words[1], 64)
		}
	}
	return values
}

// prompt is client i's prompt: a beginning that all share, and a question of its own.
func prompt(i int) []int {
	tokens := make([]int, 0, 34)
	for j := 0; j < 32; j++ {
		tokens = append(tokens, 3+j*7%100)
	}
	return append(tokens, 10+i%5, 20+i%7)
}

// More clients than the pool holds share a beginning. Some leave in the middle of their text, and
// the device changes twice meanwhile.
func TestClientsShareComeAndGo(t *testing.T) {
	const clients, count = 40, 48
	alone := serve(t, options{device: "cpu", blocks: 256, blockTokens: 8})
	wanted := map[string]string{}
	for i := 0; i < clients; i++ {
		if key := fmt.Sprint(prompt(i)); wanted[key] == "" {
			wanted[key] = text(t, alone, prompt(i), count)
		}
	}
	crowded := serve(t, options{device: "cpu", blocks: 48, blockTokens: 8})
	var group sync.WaitGroup
	for i := 0; i < clients; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			leaveAt := 0
			if i%4 == 3 {
				leaveAt = 1 + i%6
			}
			got, err := streamed(crowded, prompt(i), count, leaveAt)
			whole := wanted[fmt.Sprint(prompt(i))]
			if err != nil || (leaveAt == 0 && got != whole) || !strings.HasPrefix(whole, got) {
				t.Errorf("client %d: %v\n%s\n%s", i, err, got, whole)
			}
		}(i)
	}
	other := "vulkan"
	for n, device := range []string{other, "cpu"} {
		url := fmt.Sprintf("%s/admin/migrate?device=%s&blocks=%d", crowded, device, 56-8*n)
		status, content := post(t, url, nil)
		if status != http.StatusOK && device == other {
			t.Logf("no second vendor's device on this machine: %s", content)
			status, content = post(t, strings.Replace(url, other, "cpu", 1), nil)
		}
		t.Logf("moved: %s", content)
		if status != http.StatusOK {
			t.Error(status)
		}
	}
	group.Wait()
	values := metrics(t, crowded)
	for until := time.Now().Add(20 * time.Second); values["quire_sequences"] != 0; {
		if time.Now().After(until) {
			t.Fatalf("blocks of clients that left are still held: %v", values)
		}
		time.Sleep(5 * time.Millisecond)
		values = metrics(t, crowded)
	}
	t.Log(values)
	for name, holds := range map[string]bool{
		"blocks_held":              values["quire_blocks_held"] == 0,
		"preemptions_total":        values["quire_preemptions_total"] > 0,
		"prefix_cache_hits_total":  values["quire_prefix_cache_hits_total"] > 0,
		"requests_cancelled_total": values["quire_requests_cancelled_total"] > 0,
		"requests_finished_total":  values["quire_requests_finished_total"] >= clients*3/4,
		"migrations_total":         values["quire_migrations_total"] == 2,
		"blocks_free + blocks_cached": values["quire_blocks_free"]+values["quire_blocks_cached"] ==
			values["quire_blocks_total"],
	} {
		if !holds {
			t.Errorf("%s: %v", name, values)
		}
	}
}

func TestTextIsGolden(t *testing.T) {
	folder := os.Getenv("QUIRE_WEIGHTS")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "shared", "weights")
	}
	weights := filepath.Join(folder, "stories260K.bin")
	if _, err := os.Stat(weights); err != nil {
		t.Skipf("no stories260K.bin in %s; name its folder with QUIRE_WEIGHTS", folder)
	}
	golden, err := os.ReadFile(filepath.Join(folder, "stories260K_greedy_256.txt"))
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, options{device: "cpu", blocks: 64, blockTokens: 16, weights: weights,
		tokenizer: filepath.Join(folder, "tok512.bin")})
	if got := text(t, url, "", 256); got+"\n" != string(golden) {
		t.Fatal(got)
	}
	begins := "Once upon a time"
	if got := text(t, url, begins, 64); !strings.HasPrefix(string(golden), begins+got[:32]) {
		t.Fatal(got)
	}
}

func TestCharactersAreSentWhole(t *testing.T) {
	sent, held := "", ""
	for _, b := range []byte("né€😀.") {
		text := ""
		text, held = cut(held + string([]byte{b}))
		if !utf8.ValidString(text) {
			t.Fatalf("%q", text)
		}
		sent += text
	}
	if sent+held != "né€😀." || held != "" {
		t.Fatal(sent, held)
	}
	if text, held := cut("\xff\xfe"); text != "\xff\xfe" || held != "" {
		t.Fatal("bytes that never become a character are held back")
	}
}

// When two texts do not fit together, the older one goes on.
func TestTheOlderTextGoesOn(t *testing.T) {
	url := serve(t, options{device: "cpu", blocks: 9, blockTokens: 8}) // 64 tokens
	var group sync.WaitGroup
	for i := 0; i < 6; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			if _, err := streamed(url, prompt(i)[i:], 29, 0); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}(i)
	}
	group.Wait()
}

func TestBadInputIsRefused(t *testing.T) {
	url := serve(t, options{device: "cpu", blocks: 8, blockTokens: 8})
	for _, bad := range []map[string]interface{}{
		{},
		{"prompt": "no tokenizer"},
		{"prompt": []int{}},
		{"prompt": []int{-1}},
		{"prompt": []int{128}},
		{"prompt": []int{1}, "max_tokens": 0},
		{"prompt": []int{1}, "max_tokens": 512},
		{"prompt": []int{1}, "max_tokens": "many"},
		{"prompt": make([]int, 1000)},
	} {
		status, content := post(t, url+"/v1/completions", bad)
		if status != http.StatusBadRequest || !bytes.Contains(content, []byte("message")) {
			t.Errorf("%v: %d: %s", bad, status, content)
		}
	}
	for _, refused := range []struct {
		body   interface{}
		status int
		says   string
	}{
		{map[string]interface{}{"prompt": prompt(0), "max_tokens": 100}, 400, "the pool holds 56"},
		{map[string]interface{}{"prompt": []int{1}, "temperature": 1}, 400, "temperature"},
		{map[string]interface{}{"prompt": []int{1}, "stream": "yes"}, 400, "stream: string"},
		{strings.Repeat("x", 2<<20), 413, "larger than"},
	} {
		status, content := post(t, url+"/v1/completions", refused.body)
		if status != refused.status || !bytes.Contains(content, []byte(refused.says)) {
			t.Errorf("%d: %s", status, content)
		}
	}
	for _, query := range []string{"", "?device=none&blocks=8", "?device=cpu&blocks=1"} {
		if status, content := post(t, url+"/admin/migrate"+query, nil); status < 400 {
			t.Errorf("%s: %d: %s", query, status, content)
		}
	}
	if text(t, url, []int{1, 2}, 4) == "" {
		t.Error("the server no longer serves")
	}
	for _, wrong := range []options{
		{device: "none", blocks: 8, blockTokens: 8},
		{device: "cpu", blocks: 0, blockTokens: 8},
		{device: "cpu", blocks: 8, blockTokens: 7},
		{device: "cpu", blocks: 8, blockTokens: 8, weights: "main.go"},
		{device: "cpu", blocks: 8, blockTokens: 8, tokenizer: "go.mod"},
	} {
		if s, err := open(wrong); err == nil {
			s.engine.shutdown()
			t.Errorf("%+v was accepted", wrong)
		}
	}
}
