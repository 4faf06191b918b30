package mesh

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// shapes calls f for all tori of up to four chips a side and two cores a chip, with every
// choice of sides that close.
func shapes(f func(t *torus)) {
	for cores := 1; cores <= 2; cores++ {
		for x := 1; x <= 4; x++ {
			for y := 1; y <= 4; y++ {
				for z := 1; z <= 4; z++ {
					for bits := range 8 {
						f(&torus{
							extent: []int{cores, x, y, z},
							low:    make([]int, 4),
							wraps:  []bool{false, bits&1 != 0, bits&2 != 0, bits&4 != 0},
						})
					}
				}
			}
		}
	}
}

// An axis over a whole torus visits every device once, by neighbours, and comes back to
// its first wherever any order does: not on a line, which has one way only, and not on an
// odd number of chips without a ring, of which one color of a chessboard has more.
func TestRingCloses(t *testing.T) {
	shapes(func(tor *torus) {
		name := fmt.Sprint(tor.extent, tor.wraps)
		directions, ring, chips := 0, false, product(tor.extent[1:])
		for i, n := range tor.extent[1:] {
			if n > 1 {
				directions++
			}
			ring = ring || n > 1 && tor.wraps[i+1]
		}
		order := tor.ring(tor.extent, []int{1, 1, 1, 1})
		require.Len(t, order, product(tor.extent), name)
		seen := map[[4]int]bool{}
		for k, at := range order {
			require.False(t, seen[[4]int(at)], name)
			seen[[4]int(at)] = true
			for i, c := range at {
				require.True(t, 0 <= c && c < tor.extent[i], name)
			}
			if k > 0 {
				before := order[k-1]
				changed := tor.hops(before[1:], at[1:]) + max(before[0]-at[0], at[0]-before[0])
				require.Equal(t, 1, changed, "%s: %v is followed by %v", name, before, at)
			}
			if k%tor.extent[0] > 0 {
				require.Equal(t, order[k-1][1:], at[1:], "%s: cores of a chip follow one another", name)
			}
		}
		closed := tor.hops(order[len(order)-1][1:], order[0][1:]) <= 1
		cycle := chips <= 2 || ring || directions > 1 && chips%2 == 0
		require.Equal(t, cycle, closed, "%s: %v", name, order)
	})
}

// What the order of an axis is worth: before, the way back of the first and of others
// took links that the ring has.
func TestRingLoad(t *testing.T) {
	for _, c := range []struct {
		why          string
		extent       []int
		wraps        bool
		share, taken []int
		load, far    int
		reflected    int // the load of going back and forth alone
	}{
		{"half of a torus, and two groups", []int{2, 4, 8, 8}, true, []int{2, 4, 8, 4}, []int{1, 1, 1, 1}, 1, 1, 2},
		{"open, and through both cores", []int{2, 2, 4, 4}, false, []int{2, 2, 4, 4}, []int{1, 1, 1, 1}, 1, 1, 2},
		{"each core has a group", []int{2, 2, 4, 4}, false, []int{1, 2, 4, 4}, []int{2, 1, 1, 1}, 2, 1, 4},
		{"flat", []int{1, 8, 8, 1}, false, []int{1, 8, 8, 1}, []int{1, 1, 1, 1}, 1, 1, 2},
		{"a whole torus", []int{2, 4, 8, 8}, true, []int{2, 4, 8, 8}, []int{1, 1, 1, 1}, 1, 1, 1},
		{"others lie in between", []int{1, 8, 8, 1}, false, []int{1, 4, 8, 1}, []int{1, 2, 1, 1}, 2, 2, 2},
		{"a line has one way", []int{1, 8, 8, 1}, false, []int{1, 8, 1, 1}, []int{1, 1, 1, 1}, 2, 7, 2},
		{"odd sides: the way back was two links", []int{1, 3, 5, 1}, true, []int{1, 3, 5, 1}, []int{1, 1, 1, 1}, 1, 1, 1},
	} {
		tor := &torus{extent: c.extent, low: make([]int, 4), wraps: []bool{false, c.wraps, c.wraps, c.wraps}}
		load, far := tor.ringLoad(tor.ring(c.share, c.taken), c.share, c.taken)
		require.Equal(t, []int{c.load, c.far}, []int{load, far}, c.why)
		load, _ = tor.ringLoad(reflected(c.share), c.share, c.taken)
		require.Equal(t, c.reflected, load, c.why)
	}
}

// No share of any mesh has busier links than back and forth alone has.
func TestRingIsNeverBusier(t *testing.T) {
	for _, name := range []string{"v6e:4x8", "v5e:8x16", "tpu7x:2x4x4", "tpu7x:4x4x8", "v4:4x4x12"} {
		top, err := ParseTopology(name)
		require.NoError(t, err)
		tor, ok := newTorus(top.DeviceInfos())
		require.True(t, ok)
		n, shares := top.Devices(), map[string]bool{}
		for inner := 1; inner <= n; inner++ {
			for outer := 1; n%inner == 0 && outer <= n/inner; outer++ {
				if n/inner%outer != 0 {
					continue
				}
				taken := make([]int, len(tor.extent))
				for i := range taken {
					taken[i] = 1
				}
				for _, size := range []int{inner, outer} {
					share := tor.share(size, taken)
					key := fmt.Sprint(share, taken)
					if !shares[key] {
						load, _ := tor.ringLoad(tor.ring(share, taken), share, taken)
						before, _ := tor.ringLoad(reflected(share), share, taken)
						require.LessOrEqual(t, load, before, "%s: %s", name, key)
						shares[key] = true
					}
					for i := range taken {
						taken[i] *= share[i]
					}
				}
			}
		}
		require.Greater(t, len(shares), 10, name)
	}
}
