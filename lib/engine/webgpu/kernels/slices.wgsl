// How the lanes of an attention workgroup share rows: SLICES lanes a row, each with every SLICES-th vec4 of it, ROWS rows a lane.
const SLICE = D / 4u / SLICES; // vec4s of a row a lane
const STRIDE = 4u * SLICES; // elements from one of them to the next
const BLOCK = WG / SLICES * ROWS; // rows a workgroup
// Adds up over the lanes of a row. SLICES is 1, 2, 4 or 8, and no more than a subgroup has lanes.
fn slice_sum(x: vec4f) -> vec4f {
  SHUFFLES
}
