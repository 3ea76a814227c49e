//! typed q, k, v, d_out
// dq[t] = scale·Σ_j ds_j·k_j, with p_j = e^(s_j − lse), ds_j = p_j·(dOut·v_j − delta). A lane a query, as in attention.
struct P { d: u32, t: u32, heads: u32, kv_heads: u32, scale: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> q: array<TYPE_q>;
@group(0) @binding(2) var<storage, read> k: array<TYPE_k>;
@group(0) @binding(3) var<storage, read> v: array<TYPE_v>;
@group(0) @binding(4) var<storage, read> d_out: array<TYPE_d_out>;
@group(0) @binding(5) var<storage, read> lse: array<f32>;
@group(0) @binding(6) var<storage, read> delta: array<f32>;
@group(0) @binding(7) var<storage, read> doc_start: array<i32>;
@group(0) @binding(8) var<storage, read_write> dq: array<f32>;

var<PER_LANE> query: array<vec4f, D / 4u * SPREAD>;
var<PER_LANE> back: array<vec4f, D / 4u * SPREAD>;
var<PER_LANE> sum: array<vec4f, D / 4u * SPREAD>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let h = wid.y;
  let kv = h * p.kv_heads / p.heads;
  let first = wid.x * WG;
  let t = first + lane;
  let tq = min(t, p.t - 1u);
  let start = u32(doc_start[tq]);
  let low = u32(doc_start[first]);
  let high = min(first + WG, p.t);
  let row = tq * p.heads + h;
  for (var i = 0u; i < HEAD / 4u; i++) {
    query[mine(i, lane)] = load_q4(row * HEAD + i * 4u) * p.scale;
    back[mine(i, lane)] = load_d_out4(row * HEAD + i * 4u);
    sum[mine(i, lane)] = vec4f(0.0);
  }
  let log_total = lse[row];
  let shift = delta[row];
  for (var j = low; j < high; j += 4u) {
    let key = vec4u(j, j + 1u, j + 2u, j + 3u);
    let at = (min(key, vec4u(p.t - 1u)) * p.kv_heads + kv) * HEAD;
    var s = vec4f(0.0);
    var dp = vec4f(0.0);
    for (var i = 0u; i < HEAD / 4u; i++) {
      let x = query[mine(i, lane)];
      let y = back[mine(i, lane)];
      s += vec4f(dot(x, load_k4(at.x + i * 4u)), dot(x, load_k4(at.y + i * 4u)), dot(x, load_k4(at.z + i * 4u)), dot(x, load_k4(at.w + i * 4u)));
      dp += vec4f(dot(y, load_v4(at.x + i * 4u)), dot(y, load_v4(at.y + i * 4u)), dot(y, load_v4(at.z + i * 4u)), dot(y, load_v4(at.w + i * 4u)));
    }
    let seen = (key >= vec4u(start)) & (key <= vec4u(tq));
    let ds = select(vec4f(0.0), exp(min(s - log_total, vec4f(0.0))) * (dp - shift) * p.scale, seen);
    for (var i = 0u; i < HEAD / 4u; i++) {
      let x = sum[mine(i, lane)];
      sum[mine(i, lane)] = x + ds.x * load_k4(at.x + i * 4u) + ds.y * load_k4(at.y + i * 4u) + ds.z * load_k4(at.z + i * 4u) + ds.w * load_k4(at.w + i * 4u);
    }
  }
  if (t >= p.t) { return; }
  for (var i = 0u; i < HEAD / 4u; i++) {
    let x = sum[mine(i, lane)];
    for (var c = 0u; c < 4u; c++) { dq[row * HEAD + i * 4u + c] = x[c]; }
  }
}
