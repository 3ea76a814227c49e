/** Loaded before every test: bunfig.toml has no key for the default timeout. The first compile of an unrolled kernel on a software driver takes seconds. */
import { setDefaultTimeout } from "bun:test";

setDefaultTimeout(120_000);
