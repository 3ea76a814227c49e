/** The system's BLAS through bun:ffi: which there is, and its single-precision matrix product. */
import { CString, dlopen, FFIType, type Pointer } from "bun:ffi";

/** C = alpha·op(A)·op(B) + beta·C, row-major; pointers are byte addresses in the shared memory. */
export type Sgemm = (
  transA: number,
  transB: number,
  m: number,
  n: number,
  k: number,
  alpha: number,
  a: number,
  lda: number,
  b: number,
  ldb: number,
  beta: number,
  c: number,
  ldc: number,
) => void;

const CANDIDATES: Partial<Record<NodeJS.Platform, string[]>> = {
  linux: ["libopenblas.so.0", "libopenblas.so", "libblis.so.4", "libblis.so", "libmkl_rt.so.2", "libmkl_rt.so"],
  darwin: [
    "/System/Library/Frameworks/Accelerate.framework/Accelerate",
    "/opt/homebrew/opt/openblas/lib/libopenblas.dylib",
    "/usr/local/opt/openblas/lib/libopenblas.dylib",
  ],
  win32: ["libopenblas.dll", "mkl_rt.2.dll"],
};

const HOW: Partial<Record<NodeJS.Platform, string>> = {
  linux:
    "install OpenBLAS (Debian, Ubuntu: apt-get install libopenblas0-pthread; Fedora: dnf install openblas-threads)",
  darwin: "Accelerate is part of macOS; else brew install openblas",
  win32: "put libopenblas.dll on the PATH",
};

const ROW_MAJOR = 101;
const NO_TRANS = 111;
const TRANS = 112;

/** The library's sgemm over a memory that begins at `base`. Throws where the library or the symbol is missing. */
export function loadSgemm(library: string, base: number): Sgemm {
  const { i32, f32, ptr } = FFIType;
  const { symbols } = dlopen(library, {
    cblas_sgemm: {
      args: [i32, i32, i32, i32, i32, i32, f32, ptr, i32, ptr, i32, f32, ptr, i32],
      returns: FFIType.void,
    },
  });
  const call = symbols.cblas_sgemm as (...args: (number | Pointer)[]) => void;
  return (transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) => {
    const [ta, tb] = [transA ? TRANS : NO_TRANS, transB ? TRANS : NO_TRANS];
    call(ROW_MAJOR, ta, tb, m, n, k, alpha, base + (a >>> 0), lda, base + (b >>> 0), ldb, beta, base + (c >>> 0), ldc);
  };
}

/** Calls `use` with a symbol of the library that may be absent; whether it was there. */
function optional<R>(
  library: string,
  name: string,
  args: FFIType[],
  returns: FFIType,
  use: (f: (...a: number[]) => R) => void,
): boolean {
  try {
    const { symbols } = dlopen(library, { [name]: { args, returns } });
    use(symbols[name] as unknown as (...a: number[]) => R);
    return true;
  } catch {
    return false;
  }
}

/**
 * Each of the engine's threads calls the library on its own part of a product, so the library itself is to use one thread: its own
 * pool would fight ours for the cores.
 */
export function useOneThread(library: string): void {
  const { i32, i64 } = FFIType;
  const none = FFIType.void;
  void (
    optional(library, "openblas_set_num_threads", [i32], none, (f) => f(1)) ||
    optional(library, "MKL_Set_Num_Threads", [i32], none, (f) => f(1)) ||
    optional(library, "bli_thread_set_num_threads", [i64], none, (f) => f(1)) ||
    optional(library, "BLASSetThreading", [i32], i32, (f) => f(1))
  );
}

function nameOf(library: string): string {
  let name = library;
  optional<Pointer | null>(library, "openblas_get_config", [], FFIType.ptr, (f) => {
    const config = f();
    const words = config ? new CString(config).toString().split(" ") : [];
    const version = words.find((w) => /^\d+\.\d+/.test(w));
    if (version) name = `OpenBLAS ${version}`;
  });
  if (name === library && library.includes("Accelerate")) name = "Accelerate";
  if (name === library && library.includes("blis")) name = "BLIS";
  if (name === library && library.includes("mkl")) name = "MKL";
  return name;
}

export interface Blas {
  library: string;
  /** E.g. "OpenBLAS 0.3.21". */
  name: string;
}

/** The first library of `libraries` that loads, with what each answered. */
export function findBlas(libraries = CANDIDATES[process.platform] ?? []): { blas: Blas | null; tried: string[] } {
  const tried: string[] = [];
  for (const library of libraries) {
    try {
      loadSgemm(library, 0);
      return { blas: { library, name: nameOf(library) }, tried: [...tried, `${library}: found`] };
    } catch (error) {
      tried.push(`${library}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return { blas: null, tried };
}

/** For `doctor`: the BLAS found, what was tried, and how to get one. */
export function describeBlas(): { found: string | null; tried: string[]; how: string } {
  const { blas, tried } = findBlas();
  const how = HOW[process.platform] ?? "install OpenBLAS";
  return { found: blas ? `${blas.name} (${blas.library})` : null, tried, how };
}
