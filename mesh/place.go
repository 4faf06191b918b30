package mesh

// placement is what is known of the devices behind the positions of a mesh.
type placement struct {
	devices []DeviceInfo // by position
}

// DeviceInfo is what the runtime says of where a device sits.
type DeviceInfo struct {
	ID      int
	Process int   // the host process that drives it
	Slice   int   // the pod slice it belongs to; slices talk over the data-centre network
	Coords  []int // the chip's coordinates on the slice's torus; may be nil
	Core    int   // the core on the chip
}
