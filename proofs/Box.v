(** Boxes through a layer: the least and the largest output over all inputs in a box. *)

From LinfDist Require Export Layer.

(** The smallest and the largest |a − w| for a in the range r. *)
Definition near (r : range) (w : Z) : Z := Z.max (Z.max (fst r - w) (w - snd r)) 0.
Definition far (r : range) (w : Z) : Z := Z.max (snd r - w) (w - fst r).

(** Over the kept entries, the largest [near] (which the neuron's distance never falls below) and the largest [far]. *)
Fixpoint nearest (w : row) (b : box) : Z :=
  match w, b with
  | Some w0 :: w, r :: b => Z.max (near r w0) (nearest w b)
  | None :: w, _ :: b => nearest w b
  | _, _ => 0
  end.

Fixpoint farthest (w : row) (b : box) : Z :=
  match w, b with
  | Some w0 :: w, r :: b => Z.max (far r w0) (farthest w b)
  | None :: w, _ :: b => farthest w b
  | _, _ => 0
  end.

(** Both at once, with half the subtractions: this is most of the checker's work. *)
Fixpoint reach (w : row) (b : box) : Z * Z :=
  match w, b with
  | Some w0 :: w, r :: b =>
      let low := fst r - w0 in
      let high := snd r - w0 in
      let '(least, most) := reach w b in
      (Z.max (Z.max (Z.max low (- high)) 0) least, Z.max (Z.max high (- low)) most)
  | None :: w, _ :: b => reach w b
  | _, _ => (0, 0)
  end.

Definition fire_box (n : neuron) (b : box) : range :=
  let '(least, most) := reach (weights n) b in (least + bias n, most + bias n).
Definition layer_box (l : layer) (b : box) : box := map (fun n => fire_box n b) (neurons l).

Lemma near_far : forall r w a, in_range r a -> near r w <= Z.abs (a - w) <= far r w.
Proof. unfold in_range, near, far. intros. lia. Qed.

Lemma nearest_nonneg : forall w b, 0 <= nearest w b.
Proof. induction w as [|[w0|] w IH]; destruct b; cbn; try lia; auto. unfold near. lia. Qed.

Lemma reach_spec : forall w b, reach w b = (nearest w b, farthest w b).
Proof.
  induction w as [|[w0|] w IH]; intros [|r b]; cbn [reach nearest farthest]; auto. rewrite IH. unfold near, far.
  f_equal; lia.
Qed.

Lemma fire_box_spec : forall n b, fire_box n b = (nearest (weights n) b + bias n, farthest (weights n) b + bias n).
Proof. intros. unfold fire_box. rewrite reach_spec. reflexivity. Qed.

(** Distances over a box lie between [nearest] and [farthest]. *)
Theorem dist_enclosed : forall w b x, inside b x -> nearest w b <= dist w x <= farthest w b.
Proof.
  induction w as [|[w0|] w IH]; intros b x H; inversion H as [|r a b' x' Hr Hb]; subst; cbn; try lia.
  - specialize (IH _ _ Hb). pose proof (near_far r w0 a Hr). lia.
  - apply IH; assumption.
Qed.

(** Boxes enclose: the outputs of a layer lie in its box. *)
Theorem layer_enclosed : forall l b x, inside b x -> inside (layer_box l b) (layer_out l x).
Proof.
  intros l b x H. unfold layer_box, layer_out, inside. induction (neurons l) as [|n ns IH]; constructor.
  - pose proof (dist_enclosed (weights n) b x H). rewrite fire_box_spec. unfold in_range, fire. cbn. lia.
  - exact IH.
Qed.
