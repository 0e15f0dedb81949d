// SPDX-License-Identifier: Apache-2.0

package kvevents

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"quire"
)

// golden is golden.json of the repository's tests: batches as vLLM encodes them.
type golden struct {
	Base        string
	BlockTokens int `json:"block_tokens"`
	Groups      []struct {
		Kind   quire.GroupKind
		Window int
	}
	Names   map[string]string
	Seconds float64
	Rank    int
	Cases   []struct {
		Name       string
		Events     []goldenEvent
		Map, Array string
	}
}

type goldenEvent struct {
	Kind          quire.EventKind
	Flags         uint32
	Block, Parent uint64
	NS            uint64
	Group, Level  uint32
	Tokens        []uint32
}

func (e goldenEvent) event() quire.Event {
	event := quire.Event{Kind: e.Kind, Block: e.Block, Parent: e.Parent, Namespace: e.NS,
		Group: e.Group, Level: e.Level, Keyed: e.Flags&2 != 0}
	if e.Flags&1 != 0 {
		event.Tokens = e.Tokens
	}
	return event
}

func TestBatchesAreThoseOfVLLM(t *testing.T) {
	content, err := os.ReadFile("../../../tests/bindings/events/golden.json")
	if err != nil {
		t.Skipf("outside of Quire's repository, which has what vLLM wrote: %v", err)
	}
	var g golden
	if err := json.Unmarshal(content, &g); err != nil {
		t.Fatal(err)
	}
	base, _ := strconv.ParseUint(g.Base, 10, 64)
	var groups []quire.Group
	for _, group := range g.Groups {
		groups = append(groups, quire.Group{Kind: group.Kind, Window: group.Window})
	}
	for _, arrays := range []bool{false, true} {
		w := newWire(groups, g.BlockTokens, arrays, base)
		for ns, name := range g.Names {
			number, _ := strconv.ParseUint(ns, 10, 64)
			w.names[number] = name
		}
		for _, c := range g.Cases {
			var events []quire.Event
			for _, e := range c.Events {
				events = append(events, e.event())
			}
			wanted := c.Map
			if arrays {
				wanted = c.Array
			}
			got := hex.EncodeToString(w.batch(g.Seconds, w.say(events), g.Rank))
			if got != wanted {
				t.Errorf("%s, arrays %v:\n%s is not\n%s", c.Name, arrays, got, wanted)
			}
		}
	}
}
