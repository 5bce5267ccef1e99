(** Every theorem that docs/proofs.md names, with what it rests on. `make prove` demands that each of them is "Closed
    under the global context": no axiom, not even one of the standard library. *)

From LinfDist Require Import Checker Bytes.

Print Assumptions dist_is_a_bound.
Print Assumptions dist_is_attained.
Print Assumptions argmax_is_the_first_largest.
Print Assumptions layer_lipschitz.
Print Assumptions network_lipschitz.
Print Assumptions plain_steps.
Print Assumptions layer_enclosed.
Print Assumptions run_enclosed.
Print Assumptions margin_keeps_class.
Print Assumptions margin_keeps_classQ.
Print Assumptions box_keeps_class.
Print Assumptions box_keeps_classQ.
Print Assumptions runQ_extends_run.
Print Assumptions class_ofQ_extends_class_of.
Print Assumptions pruning_is_lossless.
Print Assumptions unused_neurons_may_go.
Print Assumptions dense_is_the_same.
Print Assumptions byte_run_same.
Print Assumptions above_and_least.
Print Assumptions steps_do_not_grow.
Print Assumptions constants_are_bytes.
Print Assumptions values_are_bytes.
Print Assumptions nothing_overflows.
Print Assumptions dense_layer_does_not_overflow.
Print Assumptions judge_sound.
Print Assumptions check_sound.
