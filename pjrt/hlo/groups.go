package hlo

import (
	"fmt"
	"slices"
	"strings"
)

// maxGroupDevices bounds the devices of a collective in malformed input.
const maxGroupDevices = 1 << 24

// parseGroup reads a ReplicaGroup.
func parseGroup(b []byte) (g []int, err error) {
	g = []int{}
	err = walk(b, func(x field) (err error) {
		if x.num == 1 {
			g, err = appendInts(g, x)
		}
		return err
	})
	return g, err
}

// parseDeviceList reads a CollectiveDeviceListProto: explicit groups, or groups
// given as a transposed iota.
func parseDeviceList(b []byte) (groups [][]int, err error) {
	err = walk(b, func(x field) error {
		switch x.num {
		case 1:
			g, err := parseGroup(x.data)
			groups = append(groups, g)
			return err
		case 2:
			var err error
			groups, err = parseIotaGroups(x.data)
			return err
		}
		return fmt.Errorf("unknown form of replica groups")
	})
	return groups, err
}

func parseIotaGroups(b []byte) ([][]int, error) {
	var n, size int
	var dims, perm []int
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			n = x.int()
		case 2:
			size = x.int()
		case 3:
			dims, err = appendInts(dims, x)
		case 4:
			perm, err = appendInts(perm, x)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	ids, err := Iota(dims, perm)
	if err != nil {
		return nil, err
	}
	if n <= 0 || size <= 0 || n > len(ids) || size > len(ids) || n*size != len(ids) {
		return nil, fmt.Errorf("%d groups of %d from %d devices", n, size, len(ids))
	}
	return slices.Collect(slices.Chunk(ids, size)), nil
}

// Iota numbers the elements of an array of the given shape in row-major order,
// transposes it by perm (none if empty) and returns the numbers in row-major
// order. XLA writes device lists that way, as "[2,4]<=[4,2]T(1,0)".
func Iota(dims, perm []int) ([]int, error) {
	total := 1
	for _, d := range dims {
		if d <= 0 || total > maxGroupDevices/d {
			return nil, fmt.Errorf("iota of shape %v", dims)
		}
		total *= d
	}
	if len(perm) == 0 {
		perm = make([]int, len(dims))
		for i := range perm {
			perm[i] = i
		}
	}
	if sorted := slices.Sorted(slices.Values(perm)); len(perm) != len(dims) {
		return nil, fmt.Errorf("iota of shape %v transposed by %v", dims, perm)
	} else {
		for i, p := range sorted {
			if p != i {
				return nil, fmt.Errorf("iota of shape %v transposed by %v", dims, perm)
			}
		}
	}
	stride := make([]int, len(dims)+1)
	stride[len(dims)] = 1
	for i := len(dims) - 1; i >= 0; i-- {
		stride[i] = stride[i+1] * dims[i]
	}
	ids := make([]int, total)
	index := make([]int, len(dims)) // in the transposed array
	for k := range ids {
		for i, p := range perm {
			ids[k] += index[i] * stride[p+1]
		}
		for i := len(dims) - 1; i >= 0; i-- {
			if index[i]++; index[i] < dims[perm[i]] {
				break
			}
			index[i] = 0
		}
	}
	return ids, nil
}

func formatGroups(groups [][]int) string {
	s := make([]string, len(groups))
	for i, g := range groups {
		s[i] = "{" + joinInts(g) + "}"
	}
	return "{" + strings.Join(s, ",") + "}"
}
