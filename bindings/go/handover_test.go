// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
	"unsafe"
)

const (
	modelLayers = 2
	promptSize  = 10 // tokens: two whole blocks of 4, and a part of the third
)

// serveModel is a cache of two layers on the cpu, with 16 blocks in the host tier.
func serveModel(t *testing.T) *served { return serveLayers(t, modelLayers, 16*512) }

func (s *served) empty() Sequence {
	s.Helper()
	sequence, err := s.cache.NewSequence(SequenceOptions{})
	must(s.T, err)
	return sequence
}

// compute runs a step over tokens of a sequence, with K and V of any bits from the seed. enqueued
// is called after each layer, if it is given.
func (s *served) compute(sequence Sequence, tokens []uint32, seed int64,
	enqueued func(step *Step, layer int)) {
	s.Helper()
	step, err := s.cache.BeginCommit(StepOptions{Queues: []*Queue{s.queue}}, s.batch,
		[]Item{{Sequence: sequence.Handle(), TokenCount: uint32(len(tokens))}}, tokens,
		make([]Result, 1))
	must(s.T, err)
	numbers := rand.New(rand.NewSource(seed))
	for layer := 0; layer < modelLayers; layer++ {
		k, v := s.memory(len(tokens)*8), s.memory(len(tokens)*8)
		for _, memory := range []*Memory{k, v} {
			for i, values := 0, memory.Float32s(); i < len(values); i++ {
				values[i] = numbers.Float32()
			}
		}
		must(s.T, s.batch.KVWrite(KV{Layer: layer, K: Operand{Memory: k}, V: Operand{Memory: v}}))
		if enqueued != nil {
			enqueued(step, layer)
		}
	}
	must(s.T, step.Finish())
	must(s.T, s.queue.Sync())
}

// session is a sequence's tokens, K and V, the same bytes wherever it is.
func (s *served) session(sequence Sequence) []byte {
	s.Helper()
	var content bytes.Buffer
	_, err := sequence.Export(&content, who, -1)
	must(s.T, err)
	return content.Bytes()
}

// rows are the bytes of K and V of a sequence's tokens in the pool, layer by layer.
func (s *served) rows(sequence Sequence, tokens int) []byte {
	s.Helper()
	pool, err := s.cache.Pool(0, 0)
	must(s.T, err)
	blocks, err := sequence.Blocks(0, nil)
	must(s.T, err)
	// The address is one of the library's, which Go's garbage collector does not know.
	memory := *(*unsafe.Pointer)(unsafe.Pointer(&pool.Address))
	all := unsafe.Slice((*byte)(memory), pool.SizeBytes)
	var found []byte
	for layer := 0; layer < modelLayers; layer++ {
		for token := 0; token < tokens; token++ {
			at := int64(blocks[token/4])*pool.BlockStride + int64(layer)*pool.LayerStride
			k, v := at+int64(token%4)*pool.KTokenStride, at+pool.VOffset+
				int64(token%4)*pool.VTokenStride
			found = append(append(found, all[k:k+32]...), all[v:v+32]...)
		}
	}
	return found
}

func (s *served) sender(sequence Sequence, options SendOptions) *Sender {
	s.Helper()
	sender, err := sequence.Send(who, options)
	must(s.T, err)
	return sender
}

func (s *served) receiver() *Receiver {
	s.Helper()
	receiver, err := s.cache.Receive(who, nil, SequenceOptions{})
	must(s.T, err)
	return receiver
}

// handedOver is all bytes of the hand-over of a computed sequence.
func (s *served) handedOver(seed int64) []byte {
	s.Helper()
	sequence := s.empty()
	s.compute(sequence, count(promptSize), seed, nil)
	sender := s.sender(sequence, SendOptions{})
	content, err := io.ReadAll(sender)
	must(s.T, err)
	must(s.T, sender.End())
	must(s.T, sequence.End(true))
	return content
}

func (s *served) received(receiver *Receiver) Sequence {
	s.Helper()
	sequence, is := receiver.Sequence()
	if !is {
		s.Fatal("not all has come")
	}
	must(s.T, receiver.End())
	return sequence
}

// unharmed is true of a cache that has room for all that it had room for.
func (s *served) unharmed() {
	s.Helper()
	must(s.T, s.cache.Check())
	stats, err := s.cache.Stats()
	must(s.T, err)
	if stats.Sequences != 0 || stats.HostBlocksUsed != 0 {
		s.Fatalf("%+v", stats)
	}
}

func TestHandedOverKAndVAreTheSameBytes(t *testing.T) {
	from, to := serveModel(t), serveModel(t)
	sequence := from.empty()
	sender, receiver := from.sender(sequence, SendOptions{Tokens: count(promptSize)}), to.receiver()
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(receiver, iotest.OneByteReader(sender))
		copied <- err
	}()
	enqueued := func(step *Step, layer int) { must(t, sender.Layers(step, layer, 1)) }
	from.compute(sequence, count(promptSize)[:6], 1, enqueued) // completes a block
	from.compute(sequence, count(promptSize)[6:], 2, enqueued)
	must(t, <-copied)
	_, progress, err := sender.Poll(nil)
	must(t, err)
	if !progress.Whole || progress.Tokens != promptSize || progress.Cells != 3*modelLayers ||
		progress.CellsDone != progress.Cells {
		t.Fatalf("%+v", progress)
	}
	must(t, sender.End())
	got := to.received(receiver)
	if !bytes.Equal(to.session(got), from.session(sequence)) {
		t.Fatal("the received sequence has other tokens, K or V")
	}
	info, err := got.Info()
	must(t, err)
	if info.ComputedTokens != promptSize || info.Flags != Swapped {
		t.Fatalf("%+v", info)
	}
	// Both go on: the received one from the device.
	from.compute(sequence, []uint32{77}, 3, nil)
	to.compute(got, []uint32{77}, 3, nil)
	rows := from.rows(sequence, promptSize+1)
	if bytes.Count(rows, []byte{0}) > len(rows)/4 {
		t.Fatal("K and V are zeros")
	}
	if !bytes.Equal(to.rows(got, promptSize+1), rows) {
		t.Fatal("the device has other K or V")
	}
	must(t, sequence.End(true))
	must(t, got.End(true))
	from.unharmed()
	to.unharmed()
}

const (
	decodeAt  = "QUIRE_TEST_HANDOVER" // where to connect to
	decodeFor = "QUIRE_TEST_BYTES"    // the process ends after so many bytes
)

// decode receives what comes over a socket in a process of its own, and answers with the session.
func decode(t *testing.T, where string) {
	s := serveModel(t)
	connection, err := net.Dial("unix", where)
	must(t, err)
	receiver := s.receiver()
	if size, err := strconv.ParseInt(os.Getenv(decodeFor), 10, 64); err == nil {
		_, err = io.CopyN(receiver, connection, size)
		must(t, err)
		os.Exit(0)
	}
	_, err = io.Copy(receiver, connection)
	must(t, err)
	_, err = connection.Write(s.session(s.received(receiver)))
	must(t, err)
	must(t, connection.Close())
}

// decoder starts that process, by the test's name, and returns the connection to it.
func decoder(t *testing.T, more ...string) (*exec.Cmd, *net.UnixConn) {
	t.Helper()
	where := filepath.Join(t.TempDir(), "decode")
	door, err := net.Listen("unix", where)
	must(t, err)
	defer door.Close()
	other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	other.Env = append(append(os.Environ(), decodeAt+"="+where), more...)
	other.Stdout, other.Stderr = os.Stdout, os.Stderr
	must(t, other.Start())
	must(t, door.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute)))
	connection, err := door.Accept()
	must(t, err)
	must(t, connection.SetDeadline(time.Now().Add(time.Minute)))
	return other, connection.(*net.UnixConn)
}

func TestHandoverToAnotherProcess(t *testing.T) {
	if where := os.Getenv(decodeAt); where != "" {
		decode(t, where)
		return
	}
	s := serveModel(t)
	other, connection := decoder(t)
	sequence := s.empty()
	sender := s.sender(sequence, SendOptions{Tokens: count(promptSize), StagingBytes: 1})
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(connection, sender)
		copied <- errors.Join(err, connection.CloseWrite())
	}()
	s.compute(sequence, count(promptSize), 5, func(step *Step, layer int) {
		must(t, sender.Layers(step, layer, 1))
	})
	must(t, <-copied)
	answer, err := io.ReadAll(connection)
	must(t, err)
	must(t, other.Wait())
	must(t, sender.End())
	if !bytes.Equal(answer, s.session(sequence)) {
		t.Fatal("the other process received other tokens, K or V")
	}
}

func TestReceivingProcessThatDiesHarmsNothing(t *testing.T) {
	if where := os.Getenv(decodeAt); where != "" {
		decode(t, where)
		return
	}
	s := serveModel(t)
	other, connection := decoder(t, decodeFor+"=1000")
	sequence := s.empty()
	s.compute(sequence, count(promptSize), 5, nil)
	whole := s.session(sequence)
	sender := s.sender(sequence, SendOptions{})
	_, err := io.CopyN(connection, sender, 1000)
	must(t, err)
	must(t, other.Wait())
	if _, err = io.Copy(connection, sender); !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
	must(t, sender.End())
	if !bytes.Equal(s.session(sequence), whole) {
		t.Fatal("a hand-over that was lost changed the sequence")
	}
	s.compute(sequence, []uint32{77}, 6, nil)
	must(t, sequence.End(true))
	s.unharmed()
}

func TestHandoversAreCancelled(t *testing.T) {
	from, to := serveModel(t), serveModel(t)
	content := from.handedOver(1)
	for _, size := range []int{0, 1, 256, 400, 1500, len(content) - 1} {
		receiver := to.receiver()
		refused(t, to.cache.Close(), ErrBusy)
		_, err := to.cache.Migrate(MigrateOptions{Shards: []Shard{{Device: to.device}}, Blocks: 16})
		refused(t, err, ErrBusy)
		taken, progress, err := receiver.Take(content[:size])
		must(t, err)
		if _, is := receiver.Sequence(); taken != size || progress.Whole || is ||
			progress.SizeBytes != uint64(size) {
			t.Fatalf("%d %+v", taken, progress)
		}
		must(t, receiver.End())
		refused(t, receiver.End(), ErrStale)
		_, _, err = receiver.Take(content[size:])
		refused(t, err, ErrStale)
		to.unharmed()
	}
	sequence := from.empty()
	sender := from.sender(sequence, SendOptions{Tokens: count(promptSize)})
	waiting := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, sender) // the head, and then it waits for a step
		waiting <- err
	}()
	for {
		_, progress, err := sender.Poll(nil)
		must(t, err)
		if progress.SizeBytes != 0 {
			break
		}
		runtime.Gosched()
	}
	must(t, sender.End())
	refused(t, <-waiting, ErrStale)
	from.compute(sequence, count(promptSize), 1, nil)
	again := from.sender(sequence, SendOptions{})
	whole, err := io.ReadAll(again)
	must(t, err)
	if !bytes.Equal(whole, content) {
		t.Fatal("a cancelled hand-over changed the sequence")
	}
	must(t, again.End())
}

func TestReceiversThatFailStayFailed(t *testing.T) {
	from, to := serveModel(t), serveModel(t)
	content := from.handedOver(1)
	damaged := bytes.Clone(content)
	damaged[len(damaged)/2] ^= 1
	receiver := to.receiver()
	_, err := io.Copy(receiver, bytes.NewReader(damaged))
	refused(t, err, ErrArg)
	_, err = receiver.Write(content)
	refused(t, err, ErrArg)
	if _, is := receiver.Sequence(); is {
		t.Fatal("a damaged hand-over left a sequence")
	}
	must(t, receiver.End())
	to.unharmed()
	for name, receive := range map[string]func() (*Receiver, error){
		"model": func() (*Receiver, error) {
			return to.cache.Receive(SessionIdentity{NameSpace: who.NameSpace}, nil, SequenceOptions{})
		},
		"tenant": func() (*Receiver, error) {
			return to.cache.Receive(SessionIdentity{Fingerprint: who.Fingerprint}, nil, SequenceOptions{})
		},
		"prompt": func() (*Receiver, error) {
			return to.cache.Receive(who, []uint32{7}, SequenceOptions{})
		},
		"keys": func() (*Receiver, error) {
			return to.cache.Receive(who, nil, SequenceOptions{
				Keys: []Key{{Type: SaltKey, Content: []byte("salt")}}})
		},
		"geometry": func() (*Receiver, error) {
			return serveWith(t, 4096).cache.Receive(who, nil, SequenceOptions{})
		},
	} {
		receiver, err := receive()
		must(t, err)
		if _, err = receiver.Write(content); !errors.Is(err, ErrArg) {
			t.Errorf("another %s: %v", name, err)
		}
		must(t, receiver.End())
	}
	to.unharmed()
}

func TestReceiverWaitsForBlocksOfTheHostTier(t *testing.T) {
	from, to := serveModel(t), serveLayers(t, modelLayers, 4*512)
	content := from.handedOver(1)
	first := to.receiver()
	_, err := first.Write(content)
	must(t, err)
	kept := to.received(first)
	second := to.receiver()
	taken, progress, err := second.Take(content)
	must(t, err)
	if !progress.Short || progress.Whole || taken == len(content) {
		t.Fatalf("%d %+v", taken, progress)
	}
	again, progress, err := second.Take(content[taken:])
	must(t, err)
	if again != 0 || !progress.Short {
		t.Fatalf("%d %+v", again, progress)
	}
	written := make(chan error, 1)
	go func() {
		_, err := second.Write(content[taken:])
		written <- err
	}()
	time.Sleep(5 * time.Millisecond)
	select {
	case err := <-written:
		t.Fatal("it did not wait: ", err)
	default:
	}
	must(t, kept.End(true))
	must(t, <-written)
	must(t, to.received(second).End(true))
	// A write that waits is cancelled too.
	kept = func() Sequence {
		receiver := to.receiver()
		_, err := receiver.Write(content)
		must(t, err)
		return to.received(receiver)
	}()
	third := to.receiver()
	go func() {
		_, err := third.Write(content)
		written <- err
	}()
	time.Sleep(5 * time.Millisecond)
	must(t, third.End())
	refused(t, <-written, ErrStale)
	must(t, kept.End(true))
	to.unharmed()
}

func TestBytesAfterAHandoverAreNotTaken(t *testing.T) {
	from, to := serveModel(t), serveModel(t)
	content := from.handedOver(1)
	receiver := to.receiver()
	size, err := receiver.Write(append(bytes.Clone(content), "next"...))
	if size != len(content) || err != io.ErrShortWrite {
		t.Fatal(size, err)
	}
	taken, progress, err := receiver.Take([]byte("next"))
	must(t, err)
	if taken != 0 || !progress.Whole {
		t.Fatalf("%d %+v", taken, progress)
	}
	must(t, to.received(receiver).End(true))
}

func TestHandoversThatCannotBeginAreRefused(t *testing.T) {
	s := serveModel(t)
	sequence := s.empty()
	begin := func(options SendOptions) error {
		sender, err := sequence.Send(who, options)
		if err == nil {
			must(t, sender.End())
		}
		return err
	}
	refused(t, begin(SendOptions{}), ErrArg) // it knows no tokens
	refused(t, begin(SendOptions{Tokens: []uint32{}}), ErrArg)
	refused(t, begin(SendOptions{Tokens: []uint32{1, Unknown}}), ErrArg)
	s.compute(sequence, count(promptSize), 1, nil)
	refused(t, begin(SendOptions{Tokens: []uint32{9, 9}}), ErrArg)
	sender := s.sender(sequence, SendOptions{})
	refused(t, begin(SendOptions{}), ErrBusy)
	refused(t, second(Sequence{}.Send(who, SendOptions{})), ErrStale)
	refused(t, sender.Layers(nil, 0, 1), ErrArg)
	other := s.empty()
	s.compute(other, count(3), 1, func(step *Step, layer int) {
		refused(t, sender.Layers(step, 0, 1), ErrArg)
		refused(t, sender.Layers(step, -1, 1), ErrArg)
		refused(t, sender.Layers(step, 0, 1<<32), ErrArg)
	})
	// A sequence that ends in the middle of its hand-over.
	buffer := make([]byte, 16)
	size, err := sender.Read(buffer)
	if size != len(buffer) || err != nil {
		t.Fatal(size, err)
	}
	must(t, sequence.End(false))
	_, err = sender.Read(buffer)
	refused(t, err, ErrStale)
	_, err = sender.Read(buffer)
	refused(t, err, ErrStale)
	must(t, sender.End())
	b := keepBooks(t, CacheOptions{})
	refused(t, second(b.cache.Receive(who, nil, SequenceOptions{})), ErrUnsupported)
	refused(t, second(b.sequence().Send(who, SendOptions{Tokens: count(3)})), ErrUnsupported)
	refused(t, second(s.cache.Receive(who, nil, SequenceOptions{Priority: 1 << 40})), ErrArg)
	must(t, other.End(true))
}

// Both ends have the same keys, and each its own namespace.
func TestHandoversKeepTenantsAndKeys(t *testing.T) {
	from, to := serveModel(t), serveModel(t)
	theirs, err := from.cache.NewNamespace([]byte("here"), 0)
	must(t, err)
	ours, err := to.cache.NewNamespace([]byte("there"), 0)
	must(t, err)
	keys := []Key{{Type: SaltKey, Content: []byte("salt")}}
	sequence, err := from.cache.NewSequence(SequenceOptions{Namespace: theirs, Keys: keys})
	must(t, err)
	from.compute(sequence, count(promptSize), 1, nil)
	_, err = to.cache.Receive(who, nil, SequenceOptions{Namespace: theirs, Keys: keys})
	refused(t, err, ErrStale)
	receiver, err := to.cache.Receive(who, nil, SequenceOptions{Namespace: ours, Keys: keys})
	must(t, err)
	refused(t, ours.Close(), ErrBusy)
	sender := from.sender(sequence, SendOptions{})
	_, err = io.Copy(receiver, sender)
	must(t, err)
	must(t, sender.End())
	got := to.received(receiver)
	if !bytes.Equal(to.session(got), from.session(sequence)) {
		t.Fatal("the received sequence has other tokens, K or V")
	}
	must(t, got.End(true))
	must(t, ours.Close())
	// Blocks from before a reset may be of other weights.
	must(t, from.cache.Reset())
	sender = from.sender(sequence, SendOptions{})
	_, err = io.ReadAll(sender)
	refused(t, err, ErrUnsupported)
	must(t, sender.End())
	must(t, sequence.End(true))
	must(t, theirs.Close())
}

func TestHandoversThatAreGoneAreStale(t *testing.T) {
	var sender Sender
	var receiver Receiver
	all := func(sender *Sender, receiver *Receiver, step *Step) []error {
		return []error{second(sender.Read(make([]byte, 1))), sender.Layers(step, 0, 1), sender.End(),
			second(receiver.Write([]byte{1})), second(receiver.Write(nil)), receiver.End()}
	}
	for _, err := range all(&sender, &receiver, &Step{}) {
		refused(t, err, ErrStale)
	}
	instance, err := NewInstance(InstanceOptions{})
	must(t, err)
	device, err := instance.OpenDevice(DeviceOptions{Backend: "cpu", Threads: 1})
	must(t, err)
	cache, err := instance.NewCache(CacheOptions{
		Groups: []Group{{Layers: 1, KVHeads: 1, HeadDim: 8, DType: F32}},
		Shards: []Shard{{Device: device}}, Blocks: 16, BlockTokens: 4, HostBytes: 4096})
	must(t, err)
	sequence, err := cache.NewSequence(SequenceOptions{})
	must(t, err)
	s, err := sequence.Send(who, SendOptions{Tokens: count(3)})
	must(t, err)
	r, err := cache.Receive(who, nil, SequenceOptions{})
	must(t, err)
	// Each end refuses what only the other one does.
	refused(t, second((&Receiver{handover: s.handover}).Write([]byte{1})), ErrArg)
	refused(t, second((&Sender{r.handover}).Read(make([]byte, 1))), ErrArg)
	// A hand-over that the program forgets goes on until it is ended.
	for i := 0; i < 3; i++ {
		runtime.GC()
	}
	refused(t, cache.Close(), ErrBusy)
	must(t, s.End())
	must(t, r.End())
	must(t, cache.Close())
	for _, err := range all(s, r, &Step{cache: cache}) {
		refused(t, err, ErrStale)
	}
	must(t, device.Close())
	must(t, instance.Close())
}

// Goroutines that read, write and end the same ends get errors, and no harm comes of it.
func TestGoroutinesShareHandovers(t *testing.T) {
	from, to := serveModel(t), serveModel(t)
	sequence := from.empty()
	from.compute(sequence, count(promptSize), 1, nil)
	for round := 0; round < 30; round++ {
		sender, receiver := from.sender(sequence, SendOptions{}), to.receiver()
		done := make(chan error, 8)
		for g := 0; g < 3; g++ {
			go func() {
				_, err := io.Copy(receiver, sender)
				done <- err
			}()
		}
		go func() {
			time.Sleep(time.Duration(round) * 20 * time.Microsecond)
			done <- errors.Join(sender.End(), receiver.End())
		}()
		ends := 0
		for g := 0; g < 4; g++ {
			if err := <-done; err == nil {
				ends++
			} else if !errors.Is(err, ErrStale) && !errors.Is(err, ErrArg) && err != io.ErrShortWrite {
				t.Error(err)
			}
		}
		if ends == 0 {
			t.Error("the ends were not ended")
		}
		if got, is := receiver.Sequence(); is {
			must(t, got.End(true))
		}
	}
	must(t, sequence.End(true))
	from.unharmed()
	to.unharmed()
}
