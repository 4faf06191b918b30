package hlo

// Convolution is what a convolution does besides its shapes. Compilers for TPU
// write contractions as convolutions.
type Convolution struct {
	// Window has an entry for each spatial dimension.
	Window []WindowDim
	// Dimensions of the operands and of the result.
	InputBatch, InputFeature, KernelInput, KernelOutput, OutputBatch, OutputFeature int
	InputSpatial, KernelSpatial, OutputSpatial                                      []int
	BatchGroups                                                                     int // 0 means 1
}

// WindowDim is a dimension of a window that moves over an array.
type WindowDim struct{ Size, Stride, PadLow, PadHigh, WindowDilation, BaseDilation int }

func (i *Instruction) convolution() *Convolution {
	if i.Conv == nil {
		i.Conv = new(Convolution)
	}
	return i.Conv
}

func (c *Convolution) parseWindow(b []byte) error {
	return walk(b, func(x field) error {
		if x.num != 1 {
			return nil
		}
		w := WindowDim{Stride: 1, WindowDilation: 1, BaseDilation: 1}
		err := walk(x.data, func(y field) error {
			switch y.num {
			case 1:
				w.Size = y.int()
			case 2:
				w.Stride = y.int()
			case 3:
				w.PadLow = y.int()
			case 4:
				w.PadHigh = y.int()
			case 5:
				w.WindowDilation = y.int()
			case 6:
				w.BaseDilation = y.int()
			}
			return nil
		})
		c.Window = append(c.Window, w)
		return err
	})
}

func (c *Convolution) parseDims(b []byte) error {
	return walk(b, func(x field) (err error) {
		switch x.num {
		case 3:
			c.KernelInput = x.int()
		case 4:
			c.KernelOutput = x.int()
		case 6:
			c.KernelSpatial, err = appendInts(c.KernelSpatial, x)
		case 7:
			c.InputBatch = x.int()
		case 8:
			c.InputFeature = x.int()
		case 9:
			c.OutputBatch = x.int()
		case 10:
			c.OutputFeature = x.int()
		case 11:
			c.InputSpatial, err = appendInts(c.InputSpatial, x)
		case 12:
			c.OutputSpatial, err = appendInts(c.OutputSpatial, x)
		}
		return err
	})
}

// Flops returns the arithmetic of a dot or convolution that is not spent on
// padding: two operations for each product. 0 for other instructions, and for
// malformed ones.
func (i *Instruction) Flops() float64 {
	switch {
	case i.Opcode == "dot" && i.Dot != nil && len(i.Operands) == 2:
		n := 2 * elementsOf(i.Shape)
		for _, d := range i.Dot.LHSContract {
			n *= dim(i.Operands[0].Shape, d)
		}
		return n
	case i.Opcode == "convolution" && i.Conv != nil && len(i.Operands) == 2:
		return i.Conv.flops(i.Operands[0].Shape, i.Operands[1].Shape, i.Shape)
	}
	return 0
}

func (c *Convolution) flops(in, kernel, out Shape) float64 {
	n := 2 * dim(out, c.OutputBatch) * dim(out, c.OutputFeature) * dim(kernel, c.KernelInput)
	for k, w := range c.Window {
		if k >= len(c.InputSpatial) || k >= len(c.OutputSpatial) {
			return 0
		}
		n *= w.products(int(dim(in, c.InputSpatial[k])), int(dim(out, c.OutputSpatial[k])))
	}
	return n / float64(max(1, c.BatchGroups))
}

// maxWindowSteps bounds the positions that are counted one by one.
const maxWindowSteps = 1 << 22

// products counts the pairs of a window's and an array's elements that meet, over
// all positions of the window; the array has in elements, there are out positions.
func (w WindowDim) products(in, out int) float64 {
	last := (in - 1) * w.BaseDilation
	if w.Stride == 1 && w.WindowDilation == 1 && w.BaseDilation == 1 {
		n := 0.0
		if out > maxWindowSteps {
			return float64(out) * float64(min(w.Size, in))
		}
		for o := range out {
			n += float64(max(0, min(w.Size-1, last+w.PadLow-o)-max(0, w.PadLow-o)+1))
		}
		return n
	}
	if float64(out)*float64(w.Size) > maxWindowSteps {
		return min(float64(w.Size)*float64(out), float64(in)*float64(max(w.Size, out)))
	}
	n := 0.0
	for o := range out {
		for t := range w.Size {
			if p := o*w.Stride + t*w.WindowDilation - w.PadLow; p >= 0 && p <= last && p%max(1, w.BaseDilation) == 0 {
				n++
			}
		}
	}
	return n
}

func dim(s Shape, d int) float64 {
	if d < 0 || d >= len(s.Dims) {
		return 0
	}
	return float64(s.Dims[d])
}

func elementsOf(s Shape) float64 {
	n := 1.0
	for _, d := range s.Dims {
		n *= float64(d)
	}
	return n
}
