module @loop attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["dp"=4, "tp"=2]>
  func.func public @main(%w: tensor<6x64x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"dp"}, {}]>, tf.aliasing_output = 0 : i32}, %x: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"tp"}, {}]>}, %d: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"tp"}, {}]>, jax.buffer_donor = true}) -> (tensor<6x64x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"dp"}, {}]>}, tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"tp"}, {}]>}) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %six = stablehlo.constant dense<6> : tensor<i32>
    %r:3 = stablehlo.while(%i = %zero, %ws = %w, %h = %x) : tensor<i32>, tensor<6x64x64xf32>, tensor<16x64xf32>
      cond {
        %c = stablehlo.compare LT, %i, %six, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %s = stablehlo.dynamic_slice %ws, %i, %zero, %zero, sizes = [1, 64, 64] : (tensor<6x64x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x64x64xf32>
        %wi = stablehlo.reshape %s : (tensor<1x64x64xf32>) -> tensor<64x64xf32>
        %g = sdy.manual_computation(%wi, %h) in_shardings=[<@mesh, [{"dp"}, {}]>, <@mesh, [{"tp"}, {}]>] out_shardings=[<@mesh, [{"tp"}, {}]>] manual_axes={"dp", "tp"} (%wl: tensor<16x64xf32>, %hl: tensor<8x64xf32>) {
          %wf = "stablehlo.all_gather"(%wl) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>, use_global_device_ids}> : (tensor<16x64xf32>) -> tensor<64x64xf32> loc(#gather)
          %y = stablehlo.dot_general %hl, %wf, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32> loc(#dot)
          %p = "stablehlo.collective_permute"(%y) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, source_target_pairs = dense<[[0, 1], [1, 0], [2, 3], [3, 2], [4, 5], [5, 4], [6, 7], [7, 6]]> : tensor<8x2xi64>}> : (tensor<8x64xf32>) -> tensor<8x64xf32>
          sdy.return %p : tensor<8x64xf32>
        } : (tensor<64x64xf32>, tensor<16x64xf32>) -> tensor<16x64xf32>
        %n = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %n, %ws, %g : tensor<i32>, tensor<6x64x64xf32>, tensor<16x64xf32>
      }
    %m = stablehlo.multiply %r#1, %r#1 : tensor<6x64x64xf32>
    %o = stablehlo.add %r#2, %d : tensor<16x64xf32>
    return %m, %o : tensor<6x64x64xf32>, tensor<16x64xf32>
  }
}
#file1 = loc("model.go":41:7)
#file2 = loc("model.go":42:9)
#gather = loc("gather_weight"(#file1))
#dot = loc("project"(#file2))
