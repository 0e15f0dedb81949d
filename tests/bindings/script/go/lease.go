// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"quire"
)

// leased is a lease and its hand.
type leased struct {
	lease quire.Lease
	hand  []int32
}

func (s *script) lease(a []uint32) string {
	if s.leases[a[0]] != nil {
		return "taken"
	}
	made, err := s.cache.NewLease(quire.LeaseOptions{})
	if err == nil {
		s.leases[a[0]] = &leased{made, nil}
	}
	return say(err)
}

// asked says what a call did that may lack blocks; the ids that it wrote become the hand.
func (l *leased) asked(ids []int32, short quire.Shortage, err error) string {
	if short.Blocks != 0 {
		return fmt.Sprint("short ", short.Blocks, " ", short.Reason)
	}
	if err == nil {
		l.hand = ids
	}
	return sayIds(err, ids)
}

func (s *script) ofLease(op string, a []uint32) string {
	of := s.leases[a[0]]
	changes := op == "take" || op == "publish" || op == "give" || op == "pin" ||
		op == "match" && quire.MatchHow(a[3]) == quire.MatchPin
	if of == nil || changes && s.step == nil {
		return "none"
	}
	switch op {
	case "unlease":
		err := of.lease.End()
		if err == nil {
			delete(s.leases, a[0])
		}
		return say(err)
	case "take":
		ids := make([]int32, a[1])
		short, err := of.lease.Take(s.step, 0, ids)
		return of.asked(ids, short, err)
	case "publish":
		named := make([]int32, len(of.hand))
		_, short, err := of.lease.Publish(s.step, numbers(a[1], uint32(len(of.hand))*4, 0), of.hand,
			named)
		return of.asked(named, short, err)
	case "match":
		ids, step, how := make([]int32, a[2]/4), s.step, quire.MatchHow(a[3])
		if how != quire.MatchPin {
			step = nil
		}
		places, short, err := of.lease.Match(step, numbers(a[1], a[2], 0), how, ids)
		return of.asked(ids[:places], short, err)
	case "give":
		ids := of.hand
		if len(ids) > int(a[1]) {
			ids = ids[:a[1]]
		}
		return say(of.lease.Give(s.step, 0, ids))
	case "pin":
		short, err := of.lease.Pin(s.step, 0, []int32{int32(a[1])})
		if short.Blocks != 0 {
			return fmt.Sprint("short ", short.Blocks, " ", short.Reason)
		}
		return say(err)
	case "forget":
		count, err := of.lease.Forget(0, of.hand)
		return say(err, count)
	default:
		blocks, err := of.lease.Blocks(0)
		values := []interface{}{}
		for _, block := range blocks {
			values = append(values, block.Block, block.Holds, uint32(block.Flags))
		}
		return say(err, values...)
	}
}
