package hlo

import "fmt"

func (p *parser) instruction(b []byte) (*Instruction, error) {
	i := new(Instruction)
	l := link{i: i}
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			i.Name = x.str()
		case 2:
			i.Opcode = x.str()
		case 3:
			i.Shape, err = parseShape(x.data, 0)
		case 7:
			err = i.parseMetadata(x.data)
		case 8:
			err = i.parseLiteral(x.data)
		case 9:
			i.ParameterNumber = x.int()
		case 11:
			i.FusionKind = x.str()
		case 13:
			i.TupleIndex = x.int()
		case 14:
			i.Dims, err = appendInts(i.Dims, x)
		case 15:
			err = i.convolution().parseWindow(x.data)
		case 16:
			err = i.convolution().parseDims(x.data)
		case 26:
			i.ChannelID = int64(x.val)
		case 28:
			i.CustomCallTarget = x.str()
		case 30:
			err = i.parseDot(x.data)
		case 35:
			i.ID = int64(x.val)
		case 36:
			l.operands, err = x.ints(l.operands)
		case 37:
			l.controls, err = x.ints(l.controls)
		case 38:
			l.called, err = x.ints(l.called)
		case 40:
			i.Sharding, err = parseSharding(x.data, 0)
		case 43:
			i.BackendConfig = x.bytes()
		case 49: // the older form of 87
			var g []int
			g, err = parseGroup(x.data)
			i.ReplicaGroups = append(i.ReplicaGroups, g)
		case 52:
			err = i.parsePair(x.data)
		case 61:
			i.convolution().BatchGroups = x.int()
		case 63:
			i.comparison = x.str()
		case 68:
			err = i.parseFrontend(x.data)
		case 71:
			i.UseGlobalDeviceIDs = x.bool()
		case 74:
			err = i.parseOperandAlias(x.data)
		case 87:
			i.ReplicaGroups, err = parseDeviceList(x.data)
		case 93:
			i.ReplicaGroups, err = parseMeshGroups(x.data)
		}
		return err
	})
	if err == nil && (i.ParameterNumber < 0 || i.ParameterNumber > maxParameters) {
		err = fmt.Errorf("parameter number %d", i.ParameterNumber)
	}
	if err == nil && p.byID[i.ID] != nil {
		err = fmt.Errorf("has the id of %q", p.byID[i.ID].Name)
	}
	if err != nil {
		return nil, fmt.Errorf("instruction %q: %w", i.Name, err)
	}
	if i.Opcode != "convolution" {
		i.Conv = nil // windows of others
	}
	p.byID[i.ID] = i
	p.links = append(p.links, l)
	return i, nil
}

// maxParameters bounds what malformed input can allocate.
const maxParameters = 1 << 24

func (i *Instruction) parseMetadata(b []byte) error {
	return walk(b, func(x field) error {
		switch x.num {
		case 1:
			i.Metadata.OpType = x.str()
		case 2:
			i.Metadata.OpName = x.str()
		case 3:
			i.Metadata.SourceFile = x.str()
		case 4:
			i.Metadata.SourceLine = x.int()
		case 15:
			i.stackFrame = x.int()
		}
		return nil
	})
}

func (i *Instruction) parseDot(b []byte) error {
	i.Dot = new(DotDims)
	return walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			i.Dot.LHSContract, err = appendInts(i.Dot.LHSContract, x)
		case 2:
			i.Dot.RHSContract, err = appendInts(i.Dot.RHSContract, x)
		case 3:
			i.Dot.LHSBatch, err = appendInts(i.Dot.LHSBatch, x)
		case 4:
			i.Dot.RHSBatch, err = appendInts(i.Dot.RHSBatch, x)
		}
		return err
	})
}

// parseLiteral keeps the value of a scalar integer.
func (i *Instruction) parseLiteral(b []byte) error {
	return walk(b, func(x field) error {
		if x.num < 4 || x.num > 7 || len(x.data) > 10 { // s32s, s64s, u32s, u64s of one element
			return nil
		}
		vs, err := x.ints(nil)
		if err == nil && len(vs) == 1 {
			i.constant, i.hasConstant = vs[0], true
		}
		return err
	})
}

func (i *Instruction) parsePair(b []byte) error {
	var pair [2]int
	err := walk(b, func(x field) error {
		switch x.num {
		case 1:
			pair[0] = x.int()
		case 2:
			pair[1] = x.int()
		}
		return nil
	})
	i.SourceTargetPairs = append(i.SourceTargetPairs, pair)
	return err
}

func (i *Instruction) parseFrontend(b []byte) error {
	return walk(b, func(x field) error {
		if x.num != 1 {
			return nil
		}
		if i.FrontendAttributes == nil {
			i.FrontendAttributes = map[string]string{}
		}
		return x.mapEntry(i.FrontendAttributes)
	})
}

func (i *Instruction) parseOperandAlias(b []byte) error {
	var a OperandAlias
	err := walk(b, func(x field) (err error) {
		switch x.num {
		case 1:
			a.OutputIndex, err = appendInts(a.OutputIndex, x)
		case 2:
			a.Operand = x.int()
		case 3:
			a.OperandIndex, err = appendInts(a.OperandIndex, x)
		}
		return err
	})
	i.OperandAliases = append(i.OperandAliases, a)
	return err
}

// frameIndex is the module's table of source positions. All ids count from 1.
type frameIndex struct {
	files     []string
	locations []struct{ file, line int }
	frames    []int // to locations
}

func (f *frameIndex) parse(b []byte) error {
	return walk(b, func(x field) error {
		switch x.num {
		case 1:
			f.files = append(f.files, x.str())
		case 3:
			var loc struct{ file, line int }
			err := walk(x.data, func(y field) error {
				switch y.num {
				case 1:
					loc.file = y.int()
				case 3:
					loc.line = y.int()
				}
				return nil
			})
			f.locations = append(f.locations, loc)
			return err
		case 4:
			frame := 0
			err := walk(x.data, func(y field) error {
				if y.num == 1 {
					frame = y.int()
				}
				return nil
			})
			f.frames = append(f.frames, frame)
			return err
		}
		return nil
	})
}

// locate sets i's source position from its stack frame.
func (f *frameIndex) locate(i *Instruction) {
	at := func(k, n int) bool { return k >= 1 && k <= n }
	if i.Metadata.SourceFile != "" || !at(i.stackFrame, len(f.frames)) {
		return
	}
	k := f.frames[i.stackFrame-1]
	if !at(k, len(f.locations)) {
		return
	}
	loc := f.locations[k-1]
	if at(loc.file, len(f.files)) {
		i.Metadata.SourceFile, i.Metadata.SourceLine = f.files[loc.file-1], loc.line
	}
}
