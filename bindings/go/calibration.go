// SPDX-License-Identifier: Apache-2.0

package quire

/*
#include "table.h"
*/
import "C"

import "unsafe"

// LayerMagnitudes are the largest magnitudes of K and V for each KV head of a layer; 0: never
// written.
type LayerMagnitudes struct{ K, V []float32 }

// Calibration is the content of a calibration: quire/calibration.h.
type Calibration struct {
	Layers    []LayerMagnitudes
	Unwritten int // count of magnitudes that are 0, which make no scale
}

func bytesOf(content []byte) (unsafe.Pointer, C.uint64_t) {
	if len(content) == 0 {
		return nil, 0
	}
	return unsafe.Pointer(&content[0]), C.uint64_t(len(content))
}

// ReadCalibration reads what SaveCalibration returned. Damaged or foreign content is refused.
func ReadCalibration(content []byte) (Calibration, error) {
	if err := Open(""); err != nil {
		return Calibration{}, err
	}
	at, size := bytesOf(content)
	var info C.quire_calibration_info
	info.struct_size = C.sizeof_quire_calibration_info
	_, err := call(func(e *C.quire_error) C.quire_status {
		return C.q_calibration_get_info(at, size, &info, e)
	})
	if err != nil {
		return Calibration{}, err
	}
	read := Calibration{Layers: make([]LayerMagnitudes, info.layer_count),
		Unwritten: int(info.unwritten)}
	numbers := make([]C.float, 2*info.max_kv_heads+1)
	for layer := range read.Layers {
		var shape C.quire_calibration_layer
		shape.struct_size = C.sizeof_quire_calibration_layer
		_, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_calibration_get_layer(at, size, C.uint32_t(layer), &shape, &numbers[0],
				C.uint32_t(len(numbers)), e)
		})
		if err != nil {
			return Calibration{}, err
		}
		heads := int(shape.kv_heads)
		both := make([]float32, 2*heads)
		for i := range both {
			both[i] = float32(numbers[i])
		}
		read.Layers[layer] = LayerMagnitudes{both[:heads], both[heads:]}
	}
	return read, nil
}

// MergeCalibrations takes the larger of each pair of numbers, to merge several runs or the ranks of
// one.
func MergeCalibrations(a, b []byte) ([]byte, error) {
	if err := Open(""); err != nil {
		return nil, err
	}
	first, firstSize := bytesOf(a)
	second, secondSize := bytesOf(b)
	var merged []byte
	for {
		var size C.uint64_t
		out, capacity := bytesOf(merged)
		status, err := call(func(e *C.quire_error) C.quire_status {
			return C.q_calibration_merge(first, firstSize, second, secondSize, out, capacity, &size, e)
		})
		if err != nil {
			return nil, err
		}
		if status != statusIncomplete {
			return merged[:size], nil
		}
		merged = make([]byte, size)
	}
}
