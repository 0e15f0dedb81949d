// SPDX-License-Identifier: Apache-2.0

package quire

import (
	"bytes"
	"testing"
	"time"
)

func TestValuesOfAStore(t *testing.T) {
	instance, err := NewInstance(InstanceOptions{})
	must(t, err)
	for store, settings := range map[string]map[string]string{
		"memory": nil, "disk": {"directory": t.TempDir(), "capacity": "1MiB"}} {
		tier, err := instance.OpenTier(TierOptions{Store: store, Settings: settings})
		must(t, err)
		info, err := tier.Info()
		must(t, err)
		if !info.Indexed || info.MaxRequests < 1 || info.Persistent != (store == "disk") {
			t.Fatalf("%s: %+v", store, info)
		}
		value := bytes.Repeat([]byte{1, 2, 3, 4}, 100)
		label, other := Label{Key: [32]byte{1}}, Label{Key: [32]byte{1}, NameSpace: [32]byte{2}}
		put, err := tier.Put(label, value, -1)
		must(t, err)
		found, err := tier.Find(label, -1)
		must(t, err)
		foreign, err := tier.Find(other, -1)
		must(t, err)
		if !put || !found || foreign {
			t.Fatal(store, put, found, foreign)
		}
		got := make([]byte, len(value))
		there, err := tier.Get(label, got, -1)
		must(t, err)
		if !there || !bytes.Equal(got, value) {
			t.Fatal(store, there, got[:8])
		}
		there, err = tier.Get(other, got, -1)
		must(t, err)
		if there || !bytes.Equal(got, value) {
			t.Fatal(store, "a miss changes nothing")
		}
		_, err = tier.Get(label, got[:7], -1)
		refuses(t, ErrArg, err)
		must(t, tier.Flush(time.Minute))
		listed := 0
		must(t, tier.Records(func(record Record) bool {
			listed++
			if record.Label != label || record.ValueBytes != uint64(len(value)) {
				t.Errorf("%s: %+v", store, record)
			}
			return true
		}))
		must(t, tier.Remove(label, -1))
		found, err = tier.Find(label, -1)
		must(t, err)
		if found || listed != 1 {
			t.Fatal(store, found, listed)
		}
		if info.Compacts {
			_, err = tier.Compact(-1)
			must(t, err)
		}
		must(t, tier.Close(-1))
		_, err = tier.Find(label, -1)
		refuses(t, ErrStale, err)
	}
	must(t, instance.Close())
}

func TestMoreRecordsThanOneCallLists(t *testing.T) {
	instance, err := NewInstance(InstanceOptions{})
	must(t, err)
	tier, err := instance.OpenTier(TierOptions{Store: "memory"})
	must(t, err)
	const records = 2*listedAtOnce + 1
	for i := 0; i < records; i++ {
		_, err := tier.Put(Label{Key: [32]byte{byte(i), 1}}, []byte{byte(i)}, -1)
		must(t, err)
	}
	seen := map[Label]bool{}
	must(t, tier.Records(func(record Record) bool { seen[record.Label] = true; return true }))
	if len(seen) != records {
		t.Fatal(len(seen))
	}
	visits := 0
	must(t, tier.Records(func(Record) bool { visits++; return visits < 3 }))
	if visits != 3 {
		t.Fatal(visits)
	}
	must(t, tier.Close(-1))
	must(t, instance.Close())
}
