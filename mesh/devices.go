package mesh

// DeviceInfos returns the devices of the topology as libtpu describes them, in
// its order: host by host, inside a host chip by chip, x fastest, then the cores
// of a chip. A host has 2×2 chips of a plane, or all of a smaller slice. With
// several slices the ids of slice s begin at 100000·(s+1). It is nil for a
// topology that Validate refuses.
func (t Topology) DeviceInfos() []DeviceInfo {
	c, err := t.Chip()
	if err != nil || t.Validate() != nil {
		return nil
	}
	sides := append([]int(nil), t.Shape...)
	for len(sides) < 3 {
		sides = append(sides, 1)
	}
	host := []int{min(2, sides[0]), min(2, sides[1])}
	out := make([]DeviceInfo, 0, t.Devices())
	process := 0
	for slice := range t.Slices {
		first := 0
		if t.Slices > 1 {
			first = 100_000 * (slice + 1)
		}
		for z := range sides[2] {
			for y := 0; y < sides[1]; y += host[1] {
				for x := 0; x < sides[0]; x += host[0] {
					for chip := range host[0] * host[1] {
						at := []int{x + chip%host[0], y + chip/host[0], z}
						number := (at[2]*sides[1]+at[1])*sides[0] + at[0]
						for core := range c.Devices {
							out = append(out, DeviceInfo{ID: first + number*c.Devices + core, Process: process, Slice: slice, Coords: at, Core: core})
						}
					}
					process++
				}
			}
		}
	}
	return out
}
