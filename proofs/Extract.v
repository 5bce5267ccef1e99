(** The checker as an OCaml program.

    [ExtrOcamlBasic] maps booleans, options, pairs and lists to OCaml's own. Numbers stay as they are defined in Coq, as
    lists of bits: no arithmetic of OCaml, and no library for large integers, is between the theorem and the program. *)

From Coq Require Import Extraction ExtrOcamlBasic.
From LinfDist Require Import Checker.

Extraction Language OCaml.
Extraction "proved.ml" network_valid judge check steps.
