module attributes {stable_mosaic.version = 11 : i64} {
"stable_mosaic.func.func"() ({
^bb0(%arg0: i32, %arg1: i32, %arg2: memref<2xi32, #tpu.memory_space<smem>>, %arg3: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg4: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg5: memref<8x128xi32, #tpu.memory_space<vmem>>, %arg6: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg7: memref<8x128xi32, #tpu.memory_space<vmem>>, %arg8: memref<128x16xf32, #tpu.memory_space<vmem>>, %arg9: memref<16x128xf32, #tpu.memory_space<vmem>>, %arg10: memref<8x128xf32, #tpu.memory_space<vmem>>):
%1 = "stable_mosaic.arith.constant"() {value = 0 : index} : () -> index
%2 = "stable_mosaic.vector.load"(%arg3, %1, %1) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
%3 = "stable_mosaic.vector.load"(%arg4, %1, %1) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
%4 = "stable_mosaic.arith.minimumf"(%2, %3) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%5 = "stable_mosaic.math.exp"(%4) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>) -> vector<8x128xf32>
%6 = "stable_mosaic.math.tanh"(%2) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>) -> vector<8x128xf32>
%7 = "stable_mosaic.arith.addf"(%5, %6) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%8 = "stable_mosaic.arith.constant"() {value = 0x40000000 : f32} : () -> f32
%9 = "stable_mosaic.arith.constant"() {value = 0x3F800000 : f32} : () -> f32
%10 = "stable_mosaic.arith.constant"() {value = 0x00000000 : f32} : () -> f32
%11 = "stable_mosaic.vector.broadcast"(%10) : (f32) -> vector<8x128xf32>
%12 = "stable_mosaic.arith.subf"(%11, %3) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%13 = "stable_mosaic.math.exp"(%12) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>) -> vector<8x128xf32>
%14 = "stable_mosaic.vector.broadcast"(%9) : (f32) -> vector<8x128xf32>
%15 = "stable_mosaic.arith.addf"(%14, %13) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%16 = "stable_mosaic.vector.broadcast"(%9) : (f32) -> vector<8x128xf32>
%17 = "stable_mosaic.arith.divf"(%16, %15) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%18 = "stable_mosaic.vector.broadcast"(%8) : (f32) -> vector<8x128xf32>
%19 = "stable_mosaic.arith.addf"(%18, %17) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%20 = "stable_mosaic.arith.divf"(%7, %19) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%21 = "stable_mosaic.arith.mulf"(%3, %3) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%22 = "stable_mosaic.vector.broadcast"(%9) : (f32) -> vector<8x128xf32>
%23 = "stable_mosaic.arith.addf"(%21, %22) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%24 = "stable_mosaic.math.log"(%23) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>) -> vector<8x128xf32>
%25 = "stable_mosaic.arith.subf"(%20, %24) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%26 = "stable_mosaic.vector.broadcast"(%10) : (f32) -> vector<8x128xf32>
%27 = "stable_mosaic.arith.maximumf"(%2, %26) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%28 = "stable_mosaic.vector.broadcast"(%9) : (f32) -> vector<8x128xf32>
%29 = "stable_mosaic.arith.addf"(%27, %28) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%30 = "stable_mosaic.math.rsqrt"(%29) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>) -> vector<8x128xf32>
%31 = "stable_mosaic.arith.mulf"(%25, %30) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%32 = "stable_mosaic.arith.constant"() {value = dense<0x00000000> : vector<128xf32>} : () -> vector<128xf32>
%33 = "stable_mosaic.vector.multi_reduction"(%2, %32) {kind = #vector.kind<add>, reduction_dims = array<i64: 0>} : (vector<8x128xf32>, vector<128xf32>) -> vector<128xf32>
%34 = "stable_mosaic.vector.shape_cast"(%33) : (vector<128xf32>) -> vector<1x128xf32>
%35 = "stable_mosaic.vector.broadcast"(%34) : (vector<1x128xf32>) -> vector<8x128xf32>
%36 = "stable_mosaic.arith.addf"(%31, %35) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%37 = "stable_mosaic.arith.constant"() {value = dense<0xFF800000> : vector<8xf32>} : () -> vector<8xf32>
%38 = "stable_mosaic.vector.multi_reduction"(%3, %37) {kind = #vector.kind<maximumf>, reduction_dims = array<i64: 1>} : (vector<8x128xf32>, vector<8xf32>) -> vector<8xf32>
%39 = "stable_mosaic.vector.shape_cast"(%38) : (vector<8xf32>) -> vector<8x1xf32>
%40 = "stable_mosaic.vector.broadcast"(%39) : (vector<8x1xf32>) -> vector<8x128xf32>
%41 = "stable_mosaic.arith.subf"(%36, %40) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%42 = "stable_mosaic.arith.truncf"(%2) : (vector<8x128xf32>) -> vector<8x128xbf16>
%43 = "stable_mosaic.arith.extf"(%42) : (vector<8x128xbf16>) -> vector<8x128xf32>
%44 = "stable_mosaic.arith.addf"(%41, %43) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%45 = "stable_mosaic.arith.constant"() {value = dense<0x00000000> : vector<8x8xf32>} : () -> vector<8x8xf32>
%46 = "stable_mosaic.tpu.matmul"(%2, %3, %45) {dimension_numbers = #tpu.dot_dimension_numbers<[1], [1], [0], [0], [0, 0, 1, 0], [], []>, transpose_lhs = false, transpose_rhs = false, precision = #tpu.contract_precision<fp32>} : (vector<8x128xf32>, vector<8x128xf32>, vector<8x8xf32>) -> vector<8x8xf32>
%47 = "stable_mosaic.arith.constant"() {value = dense<0x00000000> : vector<8x128xf32>} : () -> vector<8x128xf32>
%48 = "stable_mosaic.tpu.matmul"(%46, %2, %47) {dimension_numbers = #tpu.dot_dimension_numbers<[0], [0], [1], [1], [0, 1, 1, 1], [], []>, transpose_lhs = false, transpose_rhs = false, precision = #tpu.contract_precision<fp32>} : (vector<8x8xf32>, vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%49 = "stable_mosaic.arith.addf"(%44, %48) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%50 = "stable_mosaic.arith.cmpf"(%2, %3) {fastmath = #arith.fastmath<none>, predicate = 4 : i64} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xi1>
%51 = "stable_mosaic.vector.broadcast"(%9) : (f32) -> vector<8x128xf32>
%52 = "stable_mosaic.arith.cmpf"(%3, %51) {fastmath = #arith.fastmath<none>, predicate = 3 : i64} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xi1>
%53 = "stable_mosaic.arith.constant"() {value = dense<true> : vector<8x128xi1>} : () -> vector<8x128xi1>
%54 = "stable_mosaic.arith.xori"(%52, %53) : (vector<8x128xi1>, vector<8x128xi1>) -> vector<8x128xi1>
%55 = "stable_mosaic.arith.andi"(%50, %54) : (vector<8x128xi1>, vector<8x128xi1>) -> vector<8x128xi1>
%56 = "stable_mosaic.arith.constant"() {value = 0xBF800000 : f32} : () -> f32
%57 = "stable_mosaic.vector.broadcast"(%56) : (f32) -> vector<8x128xf32>
%58 = "stable_mosaic.arith.cmpf"(%2, %57) {fastmath = #arith.fastmath<none>, predicate = 5 : i64} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xi1>
%59 = "stable_mosaic.arith.ori"(%55, %58) : (vector<8x128xi1>, vector<8x128xi1>) -> vector<8x128xi1>
%60 = "stable_mosaic.vector.broadcast"(%8) : (f32) -> vector<8x128xf32>
%61 = "stable_mosaic.arith.cmpf"(%2, %60) {fastmath = #arith.fastmath<none>, predicate = 2 : i64} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xi1>
%62 = "stable_mosaic.arith.ori"(%59, %61) : (vector<8x128xi1>, vector<8x128xi1>) -> vector<8x128xi1>
%63 = "stable_mosaic.tpu.transpose"(%2) {permutation = array<i64: 1, 0>} : (vector<8x128xf32>) -> vector<128x8xf32>
%64 = "stable_mosaic.tpu.transpose"(%63) {permutation = array<i64: 1, 0>} : (vector<128x8xf32>) -> vector<8x128xf32>
%65 = "stable_mosaic.arith.select"(%62, %49, %64) : (vector<8x128xi1>, vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
%66 = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32
%67 = "stable_mosaic.arith.cmpi"(%arg1, %66) {predicate = 0 : i64} : (i32, i32) -> i1
"stable_mosaic.scf.if"(%67) ({
%68 = "stable_mosaic.arith.constant"() {value = dense<0x00000000> : vector<8x128xf32>} : () -> vector<8x128xf32>
"stable_mosaic.tpu.vector_store"(%68, %arg10, %1, %1) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
"stable_mosaic.scf.yield"() : () -> ()
}, {
"stable_mosaic.scf.yield"() : () -> ()
}) : (i1) -> ()
%69 = "stable_mosaic.vector.load"(%arg10, %1, %1) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
%70 = "stable_mosaic.arith.addf"(%65, %69) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
"stable_mosaic.tpu.vector_store"(%70, %arg6, %1, %1) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
%71 = "stable_mosaic.arith.constant"() {value = 1 : i32} : () -> i32
%72 = "stable_mosaic.arith.cmpi"(%arg1, %71) {predicate = 1 : i64} : (i32, i32) -> i1
"stable_mosaic.scf.if"(%72) ({
%73 = "stable_mosaic.tpu.iota"() {dimensions = array<i32: 1>} : () -> vector<8x128xi32>
%74 = "stable_mosaic.vector.broadcast"(%arg0) : (i32) -> vector<8x128xi32>
%75 = "stable_mosaic.arith.addi"(%73, %74) {overflowFlags = #arith.overflow<none>} : (vector<8x128xi32>, vector<8x128xi32>) -> vector<8x128xi32>
%76 = "stable_mosaic.arith.sitofp"(%75) : (vector<8x128xi32>) -> vector<8x128xf32>
"stable_mosaic.tpu.vector_store"(%76, %arg10, %1, %1) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
"stable_mosaic.scf.yield"() : () -> ()
}, {
"stable_mosaic.scf.yield"() : () -> ()
}) : (i1) -> ()
%77 = "stable_mosaic.vector.load"(%arg5, %1, %1) : (memref<8x128xi32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xi32>
%78 = "stable_mosaic.arith.constant"() {value = 3 : i32} : () -> i32
%79 = "stable_mosaic.vector.broadcast"(%78) : (i32) -> vector<8x128xi32>
%80 = "stable_mosaic.arith.muli"(%77, %79) {overflowFlags = #arith.overflow<none>} : (vector<8x128xi32>, vector<8x128xi32>) -> vector<8x128xi32>
%81 = "stable_mosaic.tpu.iota"() {dimensions = array<i32: 0>} : () -> vector<8x128xi32>
%82 = "stable_mosaic.vector.broadcast"(%71) : (i32) -> vector<8x128xi32>
%83 = "stable_mosaic.arith.addi"(%81, %82) {overflowFlags = #arith.overflow<none>} : (vector<8x128xi32>, vector<8x128xi32>) -> vector<8x128xi32>
%84 = "stable_mosaic.arith.divsi"(%80, %83) : (vector<8x128xi32>, vector<8x128xi32>) -> vector<8x128xi32>
%85 = "stable_mosaic.arith.constant"() {value = 5 : i32} : () -> i32
%86 = "stable_mosaic.vector.broadcast"(%85) : (i32) -> vector<8x128xi32>
%87 = "stable_mosaic.arith.remsi"(%84, %86) : (vector<8x128xi32>, vector<8x128xi32>) -> vector<8x128xi32>
"stable_mosaic.tpu.vector_store"(%87, %arg7, %1, %1) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<8x128xi32>, memref<8x128xi32, #tpu.memory_space<vmem>>, index, index) -> ()
%88 = "stable_mosaic.arith.cmpi"(%arg0, %71) {predicate = 0 : i64} : (i32, i32) -> i1
"stable_mosaic.scf.if"(%88) ({
"stable_mosaic.scf.yield"() : () -> ()
}, {
"stable_mosaic.scf.yield"() : () -> ()
}) : (i1) -> ()
%89 = "stable_mosaic.arith.constant"() {value = dense<0x40E00000> : vector<8x128xf32>} : () -> vector<8x128xf32>
%90 = "stable_mosaic.arith.constant"() {value = 8 : index} : () -> index
"stable_mosaic.tpu.vector_store"(%89, %arg9, %90, %1) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<8x128xf32>, memref<16x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
%91 = "stable_mosaic.vector.load"(%arg9, %90, %1) : (memref<16x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
%92 = "stable_mosaic.arith.constant"() {value = 0x40400000 : f32} : () -> f32
%93 = "stable_mosaic.vector.broadcast"(%92) : (f32) -> vector<8x128xf32>
%94 = "stable_mosaic.arith.subf"(%91, %93) {fastmath = #arith.fastmath<none>} : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
"stable_mosaic.tpu.vector_store"(%94, %arg9, %1, %1) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<8x128xf32>, memref<16x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
%95 = "stable_mosaic.vector.load"(%arg9, %1, %1) : (memref<16x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<16x128xf32>
%96 = "stable_mosaic.tpu.transpose"(%95) {permutation = array<i64: 1, 0>} : (vector<16x128xf32>) -> vector<128x16xf32>
"stable_mosaic.tpu.vector_store"(%96, %arg8, %1, %1) {add = false, operandSegmentSizes = array<i32: 1, 1, 2, 0>, strides = array<i32>} : (vector<128x16xf32>, memref<128x16xf32, #tpu.memory_space<vmem>>, index, index) -> ()
"stable_mosaic.func.return"() : () -> ()
}) {dimension_semantics = [#tpu.dimension_semantics<parallel>, #tpu.dimension_semantics<arbitrary>], function_type = (i32, i32, memref<2xi32, #tpu.memory_space<smem>>, memref<8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xi32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xi32, #tpu.memory_space<vmem>>, memref<128x16xf32, #tpu.memory_space<vmem>>, memref<16x128xf32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>) -> (), iteration_bounds = array<i64: 2, 2>, scalar_prefetch = 1 : i64, scratch_operands = 2 : i64, sym_name = "all_ops", tpu.core_type = #tpu.core_type<tc>, window_params = [{transform_indices = @map0, window_bounds = array<i64: 8, 128>}, {transform_indices = @map1, window_bounds = array<i64: 8, 128>}, {transform_indices = @map2, window_bounds = array<i64: 8, 128>}, {transform_indices = @map3, window_bounds = array<i64: 8, 128>}, {transform_indices = @map4, window_bounds = array<i64: 8, 128>}, {transform_indices = @map5, window_bounds = array<i64: 128, 16>}]} : () -> ()
"stable_mosaic.func.func"() ({
^bb0(%arg0: i32, %arg1: i32, %arg2: memref<2xi32, #tpu.memory_space<smem>>):
%1 = "stable_mosaic.arith.index_cast"(%arg0) : (i32) -> index
%2 = "stable_mosaic.memref.load"(%arg2, %1) : (memref<2xi32, #tpu.memory_space<smem>>, index) -> i32
"stable_mosaic.func.return"(%2, %arg1) : (i32, i32) -> ()
}) {function_type = (i32, i32, memref<2xi32, #tpu.memory_space<smem>>) -> (i32, i32), sym_name = "map0"} : () -> ()
"stable_mosaic.func.func"() ({
^bb0(%arg0: i32, %arg1: i32, %arg2: memref<2xi32, #tpu.memory_space<smem>>):
"stable_mosaic.func.return"(%arg0, %arg1) : (i32, i32) -> ()
}) {function_type = (i32, i32, memref<2xi32, #tpu.memory_space<smem>>) -> (i32, i32), sym_name = "map1"} : () -> ()
"stable_mosaic.func.func"() ({
^bb0(%arg0: i32, %arg1: i32, %arg2: memref<2xi32, #tpu.memory_space<smem>>):
%1 = "stable_mosaic.arith.constant"() {value = 2 : i32} : () -> i32
%2 = "stable_mosaic.arith.remsi"(%arg1, %1) : (i32, i32) -> i32
"stable_mosaic.func.return"(%arg0, %2) : (i32, i32) -> ()
}) {function_type = (i32, i32, memref<2xi32, #tpu.memory_space<smem>>) -> (i32, i32), sym_name = "map2"} : () -> ()
"stable_mosaic.func.func"() ({
^bb0(%arg0: i32, %arg1: i32, %arg2: memref<2xi32, #tpu.memory_space<smem>>):
"stable_mosaic.func.return"(%arg0, %arg1) : (i32, i32) -> ()
}) {function_type = (i32, i32, memref<2xi32, #tpu.memory_space<smem>>) -> (i32, i32), sym_name = "map3"} : () -> ()
"stable_mosaic.func.func"() ({
^bb0(%arg0: i32, %arg1: i32, %arg2: memref<2xi32, #tpu.memory_space<smem>>):
"stable_mosaic.func.return"(%arg0, %arg1) : (i32, i32) -> ()
}) {function_type = (i32, i32, memref<2xi32, #tpu.memory_space<smem>>) -> (i32, i32), sym_name = "map4"} : () -> ()
"stable_mosaic.func.func"() ({
^bb0(%arg0: i32, %arg1: i32, %arg2: memref<2xi32, #tpu.memory_space<smem>>):
%1 = "stable_mosaic.arith.constant"() {value = 0 : i32} : () -> i32
"stable_mosaic.func.return"(%arg1, %1) : (i32, i32) -> ()
}) {function_type = (i32, i32, memref<2xi32, #tpu.memory_space<smem>>) -> (i32, i32), sym_name = "map5"} : () -> ()
}
