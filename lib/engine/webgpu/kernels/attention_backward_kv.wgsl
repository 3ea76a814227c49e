//! typed q, k, v, d_out
//! use slices
// dv_j = Σ_t p_tj·dOut_t, dk_j = scale·Σ_t ds_tj·q_t, over the query heads of the key's head and the later queries of its document.
// Lanes hold keys as in attention they hold queries; all walk the same queries, four at a time.
struct P { d: u32, t: u32, heads: u32, kv_heads: u32, scale: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> q: array<TYPE_q>;
@group(0) @binding(2) var<storage, read> k: array<TYPE_k>;
@group(0) @binding(3) var<storage, read> v: array<TYPE_v>;
@group(0) @binding(4) var<storage, read> d_out: array<TYPE_d_out>;
@group(0) @binding(5) var<storage, read> lse: array<f32>;
@group(0) @binding(6) var<storage, read> delta: array<f32>;
@group(0) @binding(7) var<storage, read> doc_end: array<i32>;
@group(0) @binding(8) var<storage, read_write> dk: array<f32>;
@group(0) @binding(9) var<storage, read_write> dv: array<f32>;

var<PER_LANE> key: array<vec4f, ROWS * SLICE * SPREAD>;
var<PER_LANE> value: array<vec4f, ROWS * SLICE * SPREAD>;
var<PER_LANE> d_key: array<vec4f, ROWS * SLICE * SPREAD>;
var<PER_LANE> d_value: array<vec4f, ROWS * SLICE * SPREAD>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let kv = wid.y;
  let first = wid.x * BLOCK;
  let j0 = first + lane / SLICES * ROWS;
  let part = lane % SLICES * 4u;
  let high = u32(doc_end[min(first + BLOCK, p.t) - 1u]);
  var end: array<u32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    let j = min(j0 + r, p.t - 1u);
    end[r] = u32(doc_end[j]);
    for (var i = 0u; i < STEPS; i++) {
      let m = mine(r * SLICE + i, lane);
      let at = (j * p.kv_heads + kv) * HEAD + i * STRIDE + part;
      key[m] = load_k4(at) * p.scale;
      value[m] = load_v4(at);
      d_key[m] = vec4f(0.0);
      d_value[m] = vec4f(0.0);
    }
  }
  // Query heads h with h·K/H = kv.
  let head_low = (kv * p.heads + p.kv_heads - 1u) / p.kv_heads;
  let head_high = ((kv + 1u) * p.heads + p.kv_heads - 1u) / p.kv_heads;
  for (var h = head_low; h < head_high; h++) {
    for (var t0 = first; t0 < high; t0 += 4u) {
      let t = vec4u(t0, t0 + 1u, t0 + 2u, t0 + 3u);
      let row = min(t, vec4u(p.t - 1u)) * p.heads + h;
      let at = row * HEAD + part;
      var s = array<vec4f, ROWS>();
      var dp = array<vec4f, ROWS>();
      for (var i = 0u; i < STEPS; i++) {
        let a = load_q4(at.x + i * STRIDE);
        let b = load_q4(at.y + i * STRIDE);
        let c = load_q4(at.z + i * STRIDE);
        let d = load_q4(at.w + i * STRIDE);
        let oa = load_d_out4(at.x + i * STRIDE);
        let ob = load_d_out4(at.y + i * STRIDE);
        let oc = load_d_out4(at.z + i * STRIDE);
        let od = load_d_out4(at.w + i * STRIDE);
        for (var r = 0u; r < ROWS; r++) {
          let x = key[mine(r * SLICE + i, lane)];
          let y = value[mine(r * SLICE + i, lane)];
          s[r] += vec4f(dot(x, a), dot(x, b), dot(x, c), dot(x, d));
          dp[r] += vec4f(dot(y, oa), dot(y, ob), dot(y, oc), dot(y, od));
        }
      }
      let log_total = vec4f(lse[row.x], lse[row.y], lse[row.z], lse[row.w]);
      let shift = vec4f(delta[row.x], delta[row.y], delta[row.z], delta[row.w]);
      var e: array<vec4f, ROWS>;
      var ds: array<vec4f, ROWS>;
      for (var r = 0u; r < ROWS; r++) {
        let seen = (t >= vec4u(min(j0 + r, p.t - 1u))) & (t < vec4u(end[r]));
        e[r] = select(vec4f(0.0), exp(min(slice_sum(s[r]) - log_total, vec4f(0.0))), seen);
        ds[r] = e[r] * (slice_sum(dp[r]) - shift) * p.scale;
      }
      for (var i = 0u; i < STEPS; i++) {
        let a = load_q4(at.x + i * STRIDE);
        let b = load_q4(at.y + i * STRIDE);
        let c = load_q4(at.z + i * STRIDE);
        let d = load_q4(at.w + i * STRIDE);
        let oa = load_d_out4(at.x + i * STRIDE);
        let ob = load_d_out4(at.y + i * STRIDE);
        let oc = load_d_out4(at.z + i * STRIDE);
        let od = load_d_out4(at.w + i * STRIDE);
        for (var r = 0u; r < ROWS; r++) {
          let m = mine(r * SLICE + i, lane);
          let x = d_value[m];
          let y = d_key[m];
          d_value[m] = x + e[r].x * oa + e[r].y * ob + e[r].z * oc + e[r].w * od;
          d_key[m] = y + ds[r].x * a + ds[r].y * b + ds[r].z * c + ds[r].w * d;
        }
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    let j = j0 + r;
    if (j >= p.t) { break; }
    for (var i = 0u; i < STEPS; i++) {
      let m = mine(r * SLICE + i, lane);
      let x = d_key[m];
      let y = d_value[m];
      let at = (j * p.kv_heads + kv) * HEAD + i * STRIDE + part;
      for (var c = 0u; c < 4u; c++) {
        dk[at + c] = x[c];
        dv[at + c] = y[c];
      }
    }
  }
}
