package checkpoint

import (
	"sort"

	"titan/sharding"
)

// scatter copies the part of a piece that lies in a wanted region from the file
// into a buffer of that region. It can do so chunk by chunk, in any order, since
// the runs of bytes that are contiguous in both stand in the file in order.
type scatter struct {
	dst      []byte
	src, at  int64 // of the first run: offset in the file, and in dst
	run      int64 // bytes of a run
	loops    []scatterLoop
	count    int64 // of runs
	from, to int64 // the first and one past the last byte in the file
}

// scatterLoop repeats what is inside it; loops stand outermost first.
type scatterLoop struct{ n, src, dst int64 }

// newScatter plans a copy, and returns false if piece and region have nothing in
// common. base is the offset of the piece in its file.
func newScatter(dst []byte, want sharding.Region, piece sharding.Region, base int64, elem int) (*scatter, bool) {
	common, ok := want.Intersect(piece)
	if !ok {
		return nil, false
	}
	s := &scatter{dst: dst, src: base, run: int64(elem), count: 1}
	srcStride, dstStride := int64(elem), int64(elem)
	var loops []scatterLoop // innermost first
	for d := len(common.Size) - 1; d >= 0; d-- {
		s.src += int64(common.Offset[d]-piece.Offset[d]) * srcStride
		s.at += int64(common.Offset[d]-want.Offset[d]) * dstStride
		l := scatterLoop{int64(common.Size[d]), srcStride, dstStride}
		srcStride *= int64(piece.Size[d])
		dstStride *= int64(want.Size[d])
		switch last := len(loops) - 1; {
		case l.n == 1:
		case last < 0 && l.src == s.run && l.dst == s.run:
			s.run *= l.n
		case last >= 0 && l.src == loops[last].n*loops[last].src && l.dst == loops[last].n*loops[last].dst:
			loops[last].n *= l.n
		default:
			loops = append(loops, l)
		}
	}
	end := s.src + s.run
	for i := len(loops) - 1; i >= 0; i-- {
		s.loops = append(s.loops, loops[i])
		s.count *= loops[i].n
		end += (loops[i].n - 1) * loops[i].src
	}
	s.from, s.to = s.src, end
	return s, true
}

// runAt returns where a run starts in the file and in dst.
func (s *scatter) runAt(i int64) (src, dst int64) {
	src, dst = s.src, s.at
	for k := len(s.loops) - 1; k >= 0; k-- {
		l := s.loops[k]
		src += i % l.n * l.src
		dst += i % l.n * l.dst
		i /= l.n
	}
	return src, dst
}

// firstAfter returns the first run that ends beyond a byte of the file.
func (s *scatter) firstAfter(off int64) int64 {
	return int64(sort.Search(int(s.count), func(i int) bool {
		src, _ := s.runAt(int64(i))
		return src+s.run > off
	}))
}

// touches reports whether any byte of the file between two offsets is copied.
func (s *scatter) touches(from, to int64) bool {
	if to <= s.from || from >= s.to {
		return false
	}
	i := s.firstAfter(from)
	if i == s.count {
		return false
	}
	src, _ := s.runAt(i)
	return src < to
}

// direct returns the part of dst that is exactly the bytes of the file between
// two offsets, if there is one.
func (s *scatter) direct(from, to int64) ([]byte, bool) {
	if s.count != 1 || from < s.from || to > s.to {
		return nil, false
	}
	at := s.at + from - s.src
	return s.dst[at : at+to-from], true
}

// copy takes what it needs of buf, the bytes of the file from an offset on.
func (s *scatter) copy(buf []byte, off int64) {
	end := off + int64(len(buf))
	if end <= s.from || off >= s.to {
		return
	}
	i := s.firstAfter(off)
	if i == s.count {
		return
	}
	// The innermost loop runs by addition; the others are found anew.
	inner := scatterLoop{n: 1}
	if len(s.loops) > 0 {
		inner = s.loops[len(s.loops)-1]
	}
	for i < s.count {
		src, dst := s.runAt(i)
		for k := i % inner.n; k < inner.n; k++ {
			if src >= end {
				return
			}
			low, high := max(src, off), min(src+s.run, end)
			copy(s.dst[dst+low-src:dst+high-src], buf[low-off:high-off])
			src += inner.src
			dst += inner.dst
			i++
		}
	}
}
