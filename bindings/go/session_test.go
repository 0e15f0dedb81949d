// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

var who = SessionIdentity{Fingerprint: [32]byte{7}, NameSpace: [32]byte{1}}

// grownOnDevice is a sequence of 6 computed tokens, whose values are 0 and up.
func (s *served) grownOnDevice() Sequence {
	sequence, err := s.cache.NewSequence(SequenceOptions{})
	must(s.T, err)
	checkMeans(s.T, s.means(sequence, count(6), 0), 0)
	return sequence
}

// goesOn runs one more token of an imported sequence: nothing is computed again.
func (s *served) goesOn(sequence Sequence, fits bool, err error) {
	s.Helper()
	must(s.T, err)
	info, err := sequence.Info()
	must(s.T, err)
	if !fits || info.ComputedTokens != 6 || info.Flags != Swapped {
		s.Fatal(fits, info)
	}
	checkMeans(s.T, s.means(sequence, []uint32{6}, 6), 6)
}

func TestSessionComesBack(t *testing.T) {
	s := serveWith(t, 4096)
	sequence := s.grownOnDevice()
	var content bytes.Buffer
	info, err := sequence.Export(&content, who, -1)
	must(t, err)
	want := SessionInfo{6, 6, 2, uint64(content.Len())}
	if info != want {
		t.Fatalf("%+v", info)
	}
	must(t, sequence.End(true))
	// A reader that returns a few bytes at a time.
	s.goesOn(s.cache.Import(iotest.HalfReader(&content), who, SequenceOptions{}))
}

func TestSessionFileComesBack(t *testing.T) {
	s := serveWith(t, 4096)
	sequence := s.grownOnDevice()
	folder := t.TempDir()
	path := filepath.Join(folder, "one.session")
	info, err := sequence.Save(path, who, -1)
	must(t, err)
	stat, err := os.Stat(path)
	must(t, err)
	if stat.Mode().Perm() != 0o600 || stat.Size() != int64(info.SizeBytes) {
		t.Fatal(stat.Mode(), stat.Size(), info)
	}
	s.goesOn(s.cache.Restore(path, who, SequenceOptions{}))
	_, err = sequence.Save(filepath.Join(folder, "missing", "two"), who, -1)
	refused(t, err, ErrOS)
	_, _, err = s.cache.Restore(filepath.Join(folder, "missing"), who, SequenceOptions{})
	refused(t, err, ErrOS)
	_, err = sequence.Save("", who, -1)
	refused(t, err, ErrArg)
	_, _, err = s.cache.Restore("", who, SequenceOptions{})
	refused(t, err, ErrArg)
}

func TestSessionsThatAreDamagedOrForeignAreRefused(t *testing.T) {
	s := serveWith(t, 4096)
	sequence := s.grownOnDevice()
	var content bytes.Buffer
	_, err := sequence.Export(&content, who, -1)
	must(t, err)
	attempt := func(content []byte, as SessionIdentity, options SequenceOptions) error {
		_, fits, err := s.cache.Import(bytes.NewReader(content), as, options)
		if fits {
			t.Fatal("it was taken")
		}
		return err
	}
	damaged := bytes.Clone(content.Bytes())
	damaged[300] ^= 1
	refused(t, attempt(damaged, who, SequenceOptions{}), ErrArg)
	refused(t, attempt(content.Bytes(), SessionIdentity{}, SequenceOptions{}), ErrArg)
	refused(t, attempt(content.Bytes(), who, SequenceOptions{CrossTokens: 2}), ErrArg)
	refused(t, attempt(content.Bytes(), who, SequenceOptions{Priority: 1 << 40}), ErrArg)
	cut := attempt(content.Bytes()[:100], who, SequenceOptions{})
	if !errors.Is(cut, io.ErrUnexpectedEOF) {
		t.Fatal(cut)
	}
	_, err = sequence.Export(nil, who, -1)
	refused(t, err, ErrArg)
	_, _, err = s.cache.Import(nil, who, SequenceOptions{})
	refused(t, err, ErrArg)
	_, err = Sequence{}.Export(&content, who, -1)
	refused(t, err, ErrStale)
	b := keepBooks(t, CacheOptions{})
	_, err = b.sequence().Export(&content, who, -1)
	refused(t, err, ErrUnsupported)
	must(t, s.cache.Check())
}

func TestSessionIsShortOfHostBlocks(t *testing.T) {
	s := serveWith(t, 4096)
	var content bytes.Buffer
	_, err := s.grownOnDevice().Export(&content, who, -1)
	must(t, err)
	for taken := 0; ; taken++ {
		_, fits, err := s.cache.Import(bytes.NewReader(content.Bytes()), who, SequenceOptions{})
		must(t, err)
		if !fits {
			if taken == 0 {
				t.Fatal("not even one fits")
			}
			return
		}
	}
}

type broken struct{ use func() (int, error) }

func (b broken) Write([]byte) (int, error) { return b.use() }
func (b broken) Read([]byte) (int, error)  { return b.use() }

func TestErrorsAndPanicsOfASessionsStreamComeOut(t *testing.T) {
	s := serveWith(t, 4096)
	sequence := s.grownOnDevice()
	full := errors.New("full")
	for _, stream := range []broken{
		{func() (int, error) { return 0, full }},
		{func() (int, error) { panic("full") }},
	} {
		_, err := sequence.Export(stream, who, -1)
		_, _, again := s.cache.Import(stream, who, SequenceOptions{})
		for _, err := range []error{err, again} {
			if err == nil || !strings.Contains(err.Error(), "full") {
				t.Fatal(err)
			}
		}
	}
	_, err := sequence.Export(broken{func() (int, error) { return 1, nil }}, who, -1)
	if !errors.Is(err, io.ErrShortWrite) {
		t.Fatal(err)
	}
	checkMeans(t, s.means(sequence, []uint32{6}, 6), 6)
}
