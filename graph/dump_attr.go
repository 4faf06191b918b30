package graph

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"titan/dtype"
)

// attr writes what op says beyond its operands and types.
func (d *dumper) attr(op *Op) string {
	switch at := op.attr.(type) {
	case nil, DType, customAttr, *condAttr, whileAttr:
		return ""
	case constAttr:
		return at.short()
	case iotaAttr:
		return fields("dim", at.dim)
	case precisionAttr:
		return fmt.Sprintf("e%dm%d", at.exponent, at.mantissa)
	case string:
		if op.kind == opCompare {
			return at
		}
		return strconv.Quote(at)
	case broadcastAttr:
		return fields("dims", at.dims)
	case []int:
		name := map[opKind]string{opTranspose: "perm", opReverse: "dims", opDynamicSlice: "sizes"}[op.kind]
		if name == "" {
			return "" // the shape that the result shows
		}
		return name + "=[" + joinInts(at, ",") + "]"
	case int:
		return fields("dim", at)
	case sliceAttr:
		var dims []string
		for i := range at.start {
			s := fmt.Sprintf("%d:%d", at.start[i], at.limit[i])
			if at.stride[i] != 1 {
				s += ":" + strconv.Itoa(at.stride[i])
			}
			dims = append(dims, s)
		}
		return "[" + strings.Join(dims, ", ") + "]"
	case padAttr:
		return fields("low", at.low, "high", at.high, "interior", at.interior)
	case dotAttr:
		s := pairDims("batch", at.lhsBatch, at.rhsBatch) + pairDims("contract", at.lhsContract, at.rhsContract)
		if at.precision != Default {
			s += " precision=" + strings.ToLower(at.precision.String())
		}
		return strings.TrimSpace(s)
	case reduceAttr:
		return at.kind.String() + " dims=[" + joinInts(at.dims, ",") + "]"
	case constrainAttr:
		s := at.spec.String()
		if !at.ct.Equal(at.spec) {
			s += " cotangent=" + at.ct.String()
		}
		if at.grad != 0 {
			s += " grad_in=" + at.grad.String()
		}
		return s
	case axisSet:
		return "over {" + strings.Join(d.m.axisNames(at), ",") + "}"
	case collectiveAttr:
		return at.short(op.kind)
	case CustomCallSpec:
		return "@" + at.Target
	case argReduceAttr:
		if at.min {
			return fields("min dim", at.dim)
		}
		return fields("max dim", at.dim)
	case cumsumAttr:
		if at.reverse {
			return fields("reverse dim", at.dim)
		}
		return fields("dim", at.dim)
	case sortAttr:
		if at.descending {
			return fields("descending dim", at.dim)
		}
		return fields("dim", at.dim)
	case gatherAttr:
		return at.dims.short() + " sizes=[" + joinInts(at.sizes, ",") + "]"
	case scatterAttr:
		return at.kind.String() + " " + at.dims.short()
	case *scanAttr:
		s := "n=" + strconv.Itoa(at.n)
		if at.reverse {
			s += " reverse"
		}
		if at.ahead > 0 {
			s += " ahead=" + strconv.Itoa(at.ahead)
		}
		if at.behind > 0 {
			s += " behind=" + strconv.Itoa(at.behind)
		}
		return s
	case *shardMapAttr:
		return "manual={" + strings.Join(d.m.axisNames(at.manual), ",") + "}"
	case Policy:
		return at.short()
	}
	return plainAttr(op.attr)
}

// plainAttr writes the fields of an attribute that are set, those of inner
// structs among them.
func plainAttr(at any) string {
	var out []string
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		for i := range v.NumField() {
			f := v.Field(i)
			switch {
			case f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0:
			case f.Kind() == reflect.Struct:
				walk(f)
			case f.Kind() == reflect.Bool:
				out = append(out, v.Type().Field(i).Name)
			default:
				out = append(out, v.Type().Field(i).Name+"="+strings.ReplaceAll(fmt.Sprint(f), " ", ","))
			}
		}
	}
	if v := reflect.ValueOf(at); v.Kind() == reflect.Struct {
		walk(v)
		return strings.Join(out, " ")
	}
	return fmt.Sprint(at)
}

// short names the dimensions that are there.
func (d GatherDims) short() string {
	var out []string
	for _, f := range []struct {
		name string
		dims []int
	}{
		{"offset", d.OffsetDims}, {"collapsed", d.CollapsedSliceDims}, {"batch", d.OperandBatchingDims},
		{"indices_batch", d.StartIndicesBatchingDims}, {"start", d.StartIndexMap},
	} {
		if len(f.dims) > 0 {
			out = append(out, f.name+"=["+joinInts(f.dims, ",")+"]")
		}
	}
	return strings.Join(append(out, fields("vector", d.IndexVectorDim)), " ")
}

// fields writes name=value pairs.
func fields(pairs ...any) string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, fmt.Sprintf("%v=%v", pairs[i], strings.ReplaceAll(fmt.Sprint(pairs[i+1]), " ", ",")))
	}
	return strings.Join(out, " ")
}

func pairDims(name string, l, r []int) string {
	if len(l) == 0 {
		return ""
	}
	return " " + name + "=[" + joinInts(l, ",") + "]x[" + joinInts(r, ",") + "]"
}

// short gives the elements of a constant, the first few of a long one.
func (at constAttr) short() string {
	size := at.typ.DType.Size()
	n := min(len(at.data)/size, 8)
	var out []string
	for i := range n {
		out = append(out, at.element(i))
	}
	if at.splat && n == 1 {
		return out[0]
	}
	if n < len(at.data)/size {
		out = append(out, "…")
	}
	return "[" + strings.Join(out, " ") + "]"
}

func (at constAttr) element(i int) string {
	size := at.typ.DType.Size()
	one := at.data[i*size : (i+1)*size]
	if at.typ.DType.IsFloat() {
		return strconv.FormatFloat(dtype.Float(at.typ.DType, one, 0), 'g', -1, 64)
	}
	return literal(at.typ.DType, one)
}

func (at collectiveAttr) short(k opKind) string {
	s := "over {" + strings.Join(at.axes, ",") + "}"
	switch k {
	case opAllReduce, opReduceScatter:
		s = at.kind.String() + " " + s
	}
	switch k {
	case opAllGather, opReduceScatter:
		s += " dim=" + strconv.Itoa(at.dim)
	case opAllToAll:
		s += fmt.Sprintf(" split=%d concat=%d", at.dim, at.dim2)
	case opPermute:
		var pairs []string
		for _, p := range at.pair {
			pairs = append(pairs, fmt.Sprintf("%d→%d", p[0], p[1]))
		}
		s += " " + strings.Join(pairs, " ")
	}
	if at.same {
		s += " same"
	}
	if at.again {
		s += " again"
	}
	return s
}

// short says what the policy keeps.
func (p Policy) short() string {
	var out []string
	for _, k := range []struct {
		what  string
		names []string
	}{{"save", p.save}, {"offload", p.offload}} {
		names := slices.Clone(k.names)
		slices.SortFunc(names, cmp.Compare[string])
		if len(names) > 0 {
			out = append(out, k.what+"="+strings.Join(slices.Compact(names), ","))
		}
	}
	if p.dots {
		out = append(out, "save=dots")
	}
	return cmp.Or(strings.Join(out, " "), "save=nothing")
}
