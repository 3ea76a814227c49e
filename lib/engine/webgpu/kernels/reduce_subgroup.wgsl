// As reduce.wgsl where the workgroup is one subgroup.
fn wg_sum(x: f32, lane: u32) -> f32 { return subgroupAdd(x); }
fn wg_max(x: f32, lane: u32) -> f32 { return subgroupMax(x); }
