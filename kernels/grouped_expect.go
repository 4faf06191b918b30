package kernels

// typicalSizes are the sizes of E groups of rows in all, alike but for up to half a
// tile, so that they end somewhere inside of tiles.
func typicalSizes(E, rows, tile int) []int {
	const golden = 0.6180339887498949 // its multiples fill the unit interval evenly
	sizes, begin := make([]int, E), 0
	for g := range sizes {
		end := rows
		if g < E-1 {
			at := float64(g+1) * golden
			end = (g+1)*rows/E + int((at-float64(int(at))-0.5)*float64(min(tile, rows/E)))
		}
		end = max(min(end, rows), begin)
		sizes[g], begin = end-begin, end
	}
	return sizes
}

// groupingOf is what group computes, as numbers.
type groupingOf struct {
	bound                      int
	group, tile, lhsTile, rows []int32
}

// groupOf is group for sizes that are known.
func groupOf(sizes []int, first, M, size int, all bool) groupingOf {
	E, tiles := len(sizes), M/size
	rows := []int32{int32(min(first, M))}
	var from, count []int
	end, started := first, false
	for _, n := range sizes {
		begin := end
		end = min(begin+n, M)
		begin = min(begin, M)
		rows = append(rows, int32(end))
		c := 1
		switch {
		case end > begin:
			c, started = (end+size-1)/size-begin/size, true
		case all:
			c = 0
		}
		from, count = append(from, begin/size), append(count, c)
	}
	g := groupingOf{rows: rows}
	g.bound, g.group, g.tile = visitOf(from, count, tiles+E-1)
	clamp := func(x []int32) {
		for i := range x {
			x[i] = min(x[i], int32(tiles-1))
		}
	}
	clamp(g.tile)
	g.lhsTile = append([]int32(nil), g.tile...)
	if all {
		head := min(first, M) / size
		used := head
		if started {
			used = (end + size - 1) / size
		}
		for i := g.bound; i < len(g.tile); i++ {
			if rest := i - g.bound; rest < head {
				g.tile[i] = int32(rest)
			} else {
				g.tile[i] = int32(rest - head + used)
			}
			g.lhsTile[i] = int32(max(used-1, 0))
		}
		clamp(g.tile)
		g.bound += head + tiles - used
	}
	return g
}

// visitOf is visit for numbers that are known.
func visitOf(from, count []int, most int) (total int, item, tile []int32) {
	item, tile = make([]int32, most+1), make([]int32, most+1)
	for i, n := range count {
		for k := range n {
			if total <= most {
				item[total], tile[total] = int32(i), int32(from[i]+k)
			}
			total++
		}
	}
	for i := total; i <= most; i++ {
		item[i], tile[i] = int32(len(count)), int32(i)
	}
	return total, item, tile
}
