package train

import (
	"fmt"
	"slices"

	"titan/mesh"
	"titan/pjrt"
	"titan/sharding"
)

// rowsAt lists the rows of a global batch that devices at some positions need, in
// ascending order. The batch's arrays are [rows, S], or [passes, rows, S] of
// which row r of pass k is number k·rows + r.
func rowsAt(m *mesh.Mesh, v Var, positions []int) ([]int, error) {
	l, err := sharding.NewLayout(m, v.Spec, v.Type.Shape)
	if err != nil {
		return nil, fmt.Errorf("train: %s: %w", v.Name, err)
	}
	need := map[int]bool{}
	for _, p := range positions {
		eachRow(v.Type.Shape, l.Region(p), func(row, _ int) { need[row] = true })
	}
	var rows []int
	for row := range need {
		rows = append(rows, row)
	}
	slices.Sort(rows)
	return rows, nil
}

// eachRow calls f with every row of a batch's array that a region has a part of,
// and the number of that part in the region.
func eachRow(shape []int, r sharding.Region, f func(row, part int)) {
	last := len(shape) - 1
	passes, first, all := 1, 0, 0
	if last > 1 {
		passes, first, all = r.Size[0], r.Offset[0], shape[1]
	}
	n := r.Size[last-1]
	for k := range passes {
		for i := range n {
			f((first+k)*all+r.Offset[last-1]+i, k*n+i)
		}
	}
}

// putRows sends arrays of a batch as the program's inputs from number i on. They
// have some of the batch's rows, which must be those that this process needs;
// nil: all.
func (c *Compiled) putRows(i int, rows []int, batch [][]byte) ([][]*pjrt.Buffer, error) {
	var sent [][]*pjrt.Buffer
	for k, data := range batch {
		var parts []*pjrt.Buffer
		var err error
		if rows == nil {
			parts, err = c.Put(i+k, data)
		} else {
			shape := c.Module.Inputs()[i+k].Type.Shape
			parts, err = c.put(i+k, func(l *sharding.Layout, positions []int, elem int) ([][]byte, error) {
				return l.Read(positions, elem, rowReader(shape, rows, data, elem))
			})
		}
		if err != nil {
			return sent, err
		}
		sent = append(sent, parts)
	}
	return sent, nil
}

// rowReader reads regions of a batch's array from those of its rows that are at
// hand.
func rowReader(shape, rows []int, data []byte, elem int) sharding.Reader {
	S := shape[len(shape)-1] * elem
	return func(r sharding.Region, dst []byte) error {
		if len(data) != len(rows)*S {
			return fmt.Errorf("%d bytes for %d rows of %d", len(data), len(rows), S)
		}
		from, n := r.Offset[len(shape)-1]*elem, r.Size[len(shape)-1]*elem
		var missing error
		eachRow(shape, r, func(row, part int) {
			at, ok := slices.BinarySearch(rows, row)
			if !ok {
				missing = fmt.Errorf("row %d of the batch is not read on this host", row)
				return
			}
			copy(dst[part*n:(part+1)*n], data[at*S+from:at*S+from+n])
		})
		return missing
	}
}
