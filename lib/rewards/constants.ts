/** Every constant of the rewards in one place. Figures are the reference implementation's defaults: the `paper` preset. */
export interface RewardConstants {
  /** λ: weight of the format penalty. */
  lambda: number;
  /** The cascade's four shares: L1 grounding, L2 dependencies, L3 layers, L4 execution. */
  grounding: number;
  dependencies: number;
  layers: number;
  execution: number;
  /** β: weight of the mean cascade. */
  beta: number;
  /** Whether R_phase is multiplied by clip(R_outcome / full outcome, 0, 1). Off in an ablation. */
  outcomeGate: boolean;
  /** R_outcome by the verdicts quality, faithfulness, utility as three digits; and without an answer, and where the judge failed. */
  outcome: Record<"111" | "110" | "011" | "101" | "001" | "100" | "010" | "000", number>;
  noAnswer: number;
  judgeFailed: number;
  /** R_tools: for gold tools called with success, and for gold tools retrieved. */
  goldCalled: number;
  goldRetrieved: number;
  /** Scale of the three penalties' sum. */
  penaltyScale: number;
  /** For each breach of the protocol. */
  protocol: number;
  /** At most, for each of plans, searches and calls; and how many repeats give the most. */
  repetition: number;
  repeatsForMost: number;
  order: number;
}

export const PAPER_CONSTANTS: RewardConstants = {
  lambda: 1,
  grounding: 0.1,
  dependencies: 0.2,
  layers: 0.2,
  execution: 0.5,
  beta: 0.5,
  outcomeGate: true,
  outcome: { "111": 1.5, "110": 0.5, "011": 0.5, "101": 0, "001": 0, "100": -0.5, "010": -0.5, "000": -0.5 },
  noAnswer: -0.5,
  judgeFailed: 0,
  goldCalled: 0.4,
  goldRetrieved: 0.1,
  penaltyScale: 0.25,
  protocol: 0.5,
  repetition: 0.2,
  repeatsForMost: 7,
  order: 0.3,
};
