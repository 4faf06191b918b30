package hlo

import "fmt"

// parseMeshGroups reads a MeshAxesReplicaGroupListProto: the devices that lie along
// some axes of a mesh, or along parts of axes, are together. Printed, it is
// "mesh['a'=4,'b'=2] {'b','a':(1)2}". XLA's partitioner writes groups so for
// collectives that it adds.
func parseMeshGroups(b []byte) ([][]int, error) {
	var sizes, devices []int
	var refs []meshAxis
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			sizes, devices, err = parseMesh(x.data)
		case 2:
			var r meshAxis
			r, err = parseMeshAxis(x.data)
			refs = append(refs, r)
		default:
			err = fmt.Errorf("unknown form of replica groups")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// Every axis becomes three: what is before a part, the part, what is after it.
	dims := make([]int, 0, 3*len(sizes))
	for _, n := range sizes {
		dims = append(dims, 1, n, 1)
	}
	var members []int // dimensions along which devices are together
	split := make([]bool, len(sizes))
	for _, r := range refs {
		if r.axis < 0 || r.axis >= len(sizes) || split[r.axis] {
			return nil, fmt.Errorf("replica groups along axis %d, or two parts of it, of a mesh of %v", r.axis, sizes)
		}
		split[r.axis] = true
		if n := sizes[r.axis]; r.size > 0 {
			if r.before <= 0 || r.before > n || n%r.before != 0 || n/r.before%r.size != 0 {
				return nil, fmt.Errorf("replica groups along part (%d)%d of an axis of %d", r.before, r.size, n)
			}
			dims[3*r.axis], dims[3*r.axis+1], dims[3*r.axis+2] = r.before, r.size, n/r.before/r.size
		}
		members = append(members, 3*r.axis+1)
	}
	perm, size := []int{}, 1
	for d := range dims {
		member := false
		for _, m := range members {
			member = member || m == d
		}
		if !member {
			perm = append(perm, d)
		}
	}
	for _, m := range members {
		perm = append(perm, m)
		size *= dims[m]
	}
	ids, err := Iota(dims, perm)
	if err != nil {
		return nil, err
	}
	if len(devices) > 0 {
		if len(devices) != len(ids) {
			return nil, fmt.Errorf("a mesh of %v with %d devices", sizes, len(devices))
		}
		for i, at := range ids {
			ids[i] = devices[at]
		}
	}
	groups := make([][]int, 0, len(ids)/size)
	for i := 0; i < len(ids); i += size {
		groups = append(groups, ids[i:i+size:i+size])
	}
	return groups, nil
}

// meshAxis is an axis of a mesh, or with a size the part of it that has so many
// devices with before other parts outside it.
type meshAxis struct{ axis, before, size int }

func parseMeshAxis(b []byte) (a meshAxis, err error) {
	err = walk(b, func(x field) error {
		switch x.num {
		case 1:
			a.axis = x.int()
		case 2:
			return walk(x.data, func(y field) error {
				switch y.num {
				case 1:
					a.before = y.int()
				case 2:
					a.size = y.int()
				}
				return nil
			})
		}
		return nil
	})
	return a, err
}

// parseMesh reads a MeshProto: sizes of its axes, and its devices if they are not in
// the order of their numbers.
func parseMesh(b []byte) (sizes, devices []int, err error) {
	err = walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			n := 0
			err = walk(x.data, func(y field) error {
				if y.num == 2 {
					n = y.int()
				}
				return nil
			})
			sizes = append(sizes, n)
		case 2:
			devices, err = appendInts(devices, x)
		}
		return err
	})
	return sizes, devices, err
}
