(** One dist layer: y[o] = max over the kept i of |x[i] − w[o, i]|, plus b[o]. *)

From LinfDist Require Export Linf.

(** A neuron has one entry for each input: [Some w], or [None] where the weight was left out. *)
Definition row := list (option Z).
Record neuron := Neuron { weights : row; bias : Z }.

(** [bits] is the width of the integers it is executed in: 16 or 32. The exact function does not depend on it. *)
Record layer := Layer { bits : Z; neurons : list neuron }.

(** max over the kept i of |x[i] − w[i]|. No distance is negative, so the maximum may start at 0. *)
Fixpoint dist (w : row) (x : vec) : Z :=
  match w, x with
  | Some w0 :: w, x0 :: x => Z.max (Z.abs (x0 - w0)) (dist w x)
  | None :: w, _ :: x => dist w x
  | _, _ => 0
  end.

Definition fire (n : neuron) (x : vec) : Z := dist (weights n) x + bias n.
Definition layer_out (l : layer) (x : vec) : vec := map (fun n => fire n x) (neurons l).

(** [dist] is the maximum that its name says: no kept entry is further away … *)
Theorem dist_is_a_bound : forall w x i wi xi,
  nth_error w i = Some (Some wi) -> nth_error x i = Some xi -> Z.abs (xi - wi) <= dist w x.
Proof.
  induction w as [|[w0|] w IH]; intros x i wi xi Hw Hx; destruct i, x; cbn in *; try discriminate;
    try (injection Hw as ->); try (injection Hx as ->); try lia;
    specialize (IH _ _ _ _ Hw Hx); lia.
Qed.

(** … and one of them is as far away, if any is kept. *)
Theorem dist_is_attained : forall w x,
  length w = length x -> (exists i wi, nth_error w i = Some (Some wi)) ->
  exists i wi xi, nth_error w i = Some (Some wi) /\ nth_error x i = Some xi /\ dist w x = Z.abs (xi - wi).
Proof.
  induction w as [|o w IH]; intros x Hl (i & wi & Hi); [destruct i; discriminate|].
  destruct x as [|x0 x]; [discriminate|]. injection Hl as Hl.
  assert (Hrest : (exists j v, nth_error w j = Some (Some v)) -> exists j v a,
    nth_error (o :: w) (S j) = Some (Some v) /\ nth_error (x0 :: x) (S j) = Some a /\ dist w x = Z.abs (a - v)).
  { intros H. destruct (IH x Hl H) as (j & v & a & H1 & H2 & H3). exists j, v, a. auto. }
  destruct o as [w0|].
  - assert (Hcase : (exists j v, nth_error w j = Some (Some v)) \/ dist w x = 0).
    { clear. revert x. induction w as [|[v|] w IH]; intros x.
      - right. reflexivity.
      - left. exists 0%nat, v. reflexivity.
      - destruct x as [|a x]; [right; reflexivity|].
        destruct (IH x) as [(j & v & H)|H]; [left; exists (S j), v; exact H | right; exact H]. }
    destruct Hcase as [H|H].
    + destruct (Hrest H) as (j & v & a & H1 & H2 & H3). cbn [dist].
      destruct (Z.max_spec (Z.abs (x0 - w0)) (dist w x)) as [[_ ->]|[_ ->]];
        [exists (S j), v, a; auto | exists 0%nat, w0, x0; auto].
    + exists 0%nat, w0, x0. cbn. rewrite H. repeat split; lia.
  - destruct i as [|i]; [discriminate|].
    destruct (Hrest (ex_intro _ i (ex_intro _ wi Hi))) as (j & v & a & H). exists (S j), v, a. exact H.
Qed.

Lemma dist_nonneg : forall w x, 0 <= dist w x.
Proof. induction w as [|[w0|] w IH]; destruct x; cbn; try lia; auto. Qed.

(** A distance moves by no more than its inputs do (Fact 3.4 of the paper). *)
Theorem dist_lipschitz : forall w d x y, 0 <= d -> close d x y -> Z.abs (dist w x - dist w y) <= d.
Proof.
  induction w as [|[w0|] w IH]; intros d x y Hd H; inversion H; subst; cbn; try lia.
  - specialize (IH d _ _ Hd H1). lia.
  - apply IH; assumption.
Qed.

(** Every layer is 1-Lipschitz in ℓ∞. *)
Theorem layer_lipschitz : forall l d x y, 0 <= d -> close d x y -> close d (layer_out l x) (layer_out l y).
Proof.
  intros l d x y Hd H. unfold layer_out, close. induction (neurons l) as [|n ns IH]; constructor.
  - unfold fire. pose proof (dist_lipschitz (weights n) d x y Hd H). lia.
  - exact IH.
Qed.
