// As reduce.wgsl with a workgroup of several whole subgroups of SUBGROUP lanes: two barriers instead of one a halving.
var<workgroup> reduce_parts: array<f32, WG / SUBGROUP>;

fn wg_sum(x: f32, lane: u32) -> f32 {
  let part = subgroupAdd(x);
  if (lane % SUBGROUP == 0u) { reduce_parts[lane / SUBGROUP] = part; }
  workgroupBarrier();
  var total = 0.0;
  for (var i = 0u; i < WG / SUBGROUP; i++) { total += reduce_parts[i]; }
  workgroupBarrier();
  return total;
}

fn wg_max(x: f32, lane: u32) -> f32 {
  let part = subgroupMax(x);
  if (lane % SUBGROUP == 0u) { reduce_parts[lane / SUBGROUP] = part; }
  workgroupBarrier();
  var most = reduce_parts[0];
  for (var i = 1u; i < WG / SUBGROUP; i++) { most = max(most, reduce_parts[i]); }
  workgroupBarrier();
  return most;
}
