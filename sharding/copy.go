package sharding

// loop is one level of a strided copy: n steps, each this many bytes apart.
type loop struct{ n, dst, src int }

// copyCommon copies the elements of common, which lies inside both regions.
//
// Dimensions that are adjacent in both buffers are merged first, so that a
// shard which is contiguous in the array is one memmove.
func copyCommon(dst []byte, dstRegion Region, src []byte, srcRegion Region, common Region, elemSize int) {
	run, d, s := elemSize, 0, 0
	loops := make([]loop, 0, len(common.Size)) // innermost first
	dstStride, srcStride := elemSize, elemSize
	for i := len(common.Size) - 1; i >= 0; i-- {
		d += (common.Offset[i] - dstRegion.Offset[i]) * dstStride
		s += (common.Offset[i] - srcRegion.Offset[i]) * srcStride
		next := loop{common.Size[i], dstStride, srcStride}
		dstStride *= dstRegion.Size[i]
		srcStride *= srcRegion.Size[i]
		switch last := len(loops) - 1; {
		case next.n == 1:
		case last < 0 && next.dst == run && next.src == run:
			run *= next.n
		case last >= 0 && next.dst == loops[last].n*loops[last].dst && next.src == loops[last].n*loops[last].src:
			loops[last].n *= next.n
		default:
			loops = append(loops, next)
		}
	}
	if len(loops) == 0 {
		copy(dst[d:d+run], src[s:s+run])
		return
	}
	inner, outer := loops[0], loops[1:]
	at := make([]int, len(outer))
	for {
		copyRuns(dst[d:], src[s:], inner, run)
		k := 0
		for ; k < len(outer); k++ {
			d += outer[k].dst
			s += outer[k].src
			if at[k]++; at[k] < outer[k].n {
				break
			}
			d -= outer[k].n * outer[k].dst
			s -= outer[k].n * outer[k].src
			at[k] = 0
		}
		if k == len(outer) {
			return
		}
	}
}

// copyRuns copies l.n runs of the given number of bytes. Runs of one element
// are moved by value: a call of memmove would cost several times the move.
func copyRuns(dst, src []byte, l loop, run int) {
	d, s := 0, 0
	switch run {
	case 1:
		for range l.n {
			dst[d] = src[s]
			d += l.dst
			s += l.src
		}
	case 2:
		for range l.n {
			*(*[2]byte)(dst[d:]) = [2]byte(src[s:])
			d += l.dst
			s += l.src
		}
	case 4:
		for range l.n {
			*(*[4]byte)(dst[d:]) = [4]byte(src[s:])
			d += l.dst
			s += l.src
		}
	case 8:
		for range l.n {
			*(*[8]byte)(dst[d:]) = [8]byte(src[s:])
			d += l.dst
			s += l.src
		}
	case 16:
		for range l.n {
			*(*[16]byte)(dst[d:]) = [16]byte(src[s:])
			d += l.dst
			s += l.src
		}
	default:
		for range l.n {
			copy(dst[d:d+run], src[s:s+run])
			d += l.dst
			s += l.src
		}
	}
}
