// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import (
	"fmt"
	"math"
)

// counts turns the numbers of a call into those of a C struct. A number that does not fit into its
// field is refused with the number that the caller gave, and never cut to the field's bits. The
// first refusal is kept in err, so that a struct is filled without a check after each field.
type counts struct{ err error }

// u32 returns the number for an unsigned field of 32 bits.
func (c *counts) u32(name string, number int) C.uint32_t {
	if number < 0 || uint64(number) > math.MaxUint32 {
		c.refuse(name, number, 0, math.MaxUint32)
		return 0
	}
	return C.uint32_t(number)
}

// i32 returns the number for a signed field of 32 bits.
func (c *counts) i32(name string, number int) C.int32_t {
	if number < math.MinInt32 || number > math.MaxInt32 {
		c.refuse(name, number, math.MinInt32, math.MaxInt32)
		return 0
	}
	return C.int32_t(number)
}

func (c *counts) refuse(name string, number int, least, most int64) {
	if c.err == nil {
		c.err = failed(ErrArg, "%s is %d: it must be %d to %d", name, number, least, most)
	}
}

// of names a field of an array's element.
func of(array string, i int, field string) string {
	return fmt.Sprintf("%s[%d].%s", array, i, field)
}
