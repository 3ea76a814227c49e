// Sums and maxima over the workgroup's WG lanes (a power of two), in a fixed order; every lane gets the result.
var<workgroup> reduce_lanes: array<f32, WG>;

fn wg_sum(x: f32, lane: u32) -> f32 {
  reduce_lanes[lane] = x;
  for (var s = WG / 2u; s > 0u; s >>= 1u) {
    workgroupBarrier();
    if (lane < s) { reduce_lanes[lane] += reduce_lanes[lane + s]; }
  }
  let result = workgroupUniformLoad(&reduce_lanes[0]);
  workgroupBarrier();
  return result;
}

fn wg_max(x: f32, lane: u32) -> f32 {
  reduce_lanes[lane] = x;
  for (var s = WG / 2u; s > 0u; s >>= 1u) {
    workgroupBarrier();
    if (lane < s) { reduce_lanes[lane] = max(reduce_lanes[lane], reduce_lanes[lane + s]); }
  }
  let result = workgroupUniformLoad(&reduce_lanes[0]);
  workgroupBarrier();
  return result;
}
