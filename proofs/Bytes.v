(** The 8-bit form: unsigned bytes and no biases (docs/exact.md, "8 bits").

    If no input has more than 255 steps, neither has any neuron of any layer. Each is its floor, the least that it can be,
    and what goes beyond it: the largest of x − (w + floor) and (w − floor) − x, or 0. With x counted from its own least
    value, these constants lie in 0 … 255, or that side can never win and is left out. *)

From LinfDist Require Export Network.

(** Subtraction of unsigned bytes that stops at 0, as vector instructions have it. *)
Definition excess (a b : Z) : Z := Z.max (a - b) 0.

(** For each input the constant of each side: of x − c, and of c − x. *)
Definition sides := list (option Z * option Z).

Definition byte_entry (floor : Z) (o : option Z) (r : range) : option Z * option Z :=
  match o with
  | Some w => (if floor <? snd r - w then Some (w + floor - fst r) else None,
               if floor <? w - fst r then Some (w - floor - fst r) else None)
  | None => (None, None)
  end.

Fixpoint byte_row (floor : Z) (w : row) (b : box) : sides :=
  match w, b with
  | o :: w, r :: b => byte_entry floor o r :: byte_row floor w b
  | _, _ => []
  end.

Definition byte_above (c : option Z) (x : Z) : Z := match c with Some c => excess x c | None => 0 end.
Definition byte_below (c : option Z) (x : Z) : Z := match c with Some c => excess c x | None => 0 end.

Fixpoint byte_dist (s : sides) (x : vec) : Z :=
  match s, x with
  | (above, below) :: s, a :: x => Z.max (Z.max (byte_above above a) (byte_below below a)) (byte_dist s x)
  | _, _ => 0
  end.

Definition byte_layer (l : layer) (b : box) : list sides :=
  map (fun n => byte_row (nearest (weights n) b) (weights n) b) (neurons l).

(** All layers in bytes, for inputs of the box b. *)
Fixpoint byte_run (ls : list layer) (b : box) (x : vec) : vec :=
  match ls with
  | [] => x
  | l :: ls => byte_run ls (layer_box l b) (map (fun s => byte_dist s x) (byte_layer l b))
  end.

(** By how much values are above their least ones. *)
Fixpoint above (b : box) (x : vec) : vec :=
  match b, x with
  | r :: b, a :: x => (a - fst r) :: above b x
  | _, _ => []
  end.

Definition byte (a : Z) : Prop := 0 <= a <= 255.
Definition in_steps (b : box) : Prop := Forall (fun r => snd r - fst r <= 255) b.

Lemma byte_dist_excess : forall floor w b x, 0 <= floor -> inside b x ->
  byte_dist (byte_row floor w b) (above b x) = Z.max (dist w x - floor) 0.
Proof.
  intros floor. induction w as [|o w IH]; intros b x Hf H; destruct H as [|r a b x Hr Hx]; cbn; try lia.
  - destruct o; cbn; lia.
  - rewrite (IH b x Hf Hx). unfold in_range in Hr. destruct o as [w0|]; cbn; [|lia].
    destruct (floor <? snd r - w0) eqn:E; destruct (floor <? w0 - fst r) eqn:F; cbn; unfold excess;
      apply Z.ltb_lt in E || apply Z.ltb_ge in E; apply Z.ltb_lt in F || apply Z.ltb_ge in F; lia.
Qed.

(** A neuron in bytes is the neuron less the least that it can be. *)
Theorem byte_neuron_same : forall n b x, inside b x ->
  byte_dist (byte_row (nearest (weights n) b) (weights n) b) (above b x) = fire n x - fst (fire_box n b).
Proof.
  intros n b x H. rewrite byte_dist_excess; [|apply nearest_nonneg|exact H].
  pose proof (dist_enclosed (weights n) b x H). rewrite fire_box_spec. unfold fire. cbn. lia.
Qed.

Theorem byte_layer_same : forall l b x, inside b x ->
  map (fun s => byte_dist s (above b x)) (byte_layer l b) = above (layer_box l b) (layer_out l x).
Proof.
  intros l b x H. unfold byte_layer, layer_box, layer_out. rewrite map_map.
  induction (neurons l) as [|n ns IH]; [reflexivity|]. cbn. rewrite IH. f_equal. apply byte_neuron_same, H.
Qed.

(** Layers in bytes compute the outputs less their least values, whatever the number of steps … *)
Theorem byte_run_same : forall ls b x, inside b x ->
  byte_run ls b (above b x) = above (run_box (map Dist ls) b) (run (map Dist ls) x).
Proof.
  induction ls as [|l ls IH]; intros b x H; [reflexivity|].
  cbn [byte_run map run run_box stage_box stage_out]. rewrite (byte_layer_same l b x H). apply IH, layer_enclosed, H.
Qed.

(** … so that the least values, added in the end, give the outputs. *)
Theorem above_and_least : forall b x, inside b x ->
  x = map (fun '(r, a) => fst r + a) (combine b (above b x)).
Proof. intros b x H. induction H; cbn; [reflexivity|]. f_equal; [lia | assumption]. Qed.

(** ** They are bytes *)

Lemma width_does_not_grow : forall w b, in_steps b -> farthest w b - nearest w b <= 255.
Proof.
  induction w as [|[w0|] w IH]; intros [|r b] H; cbn; try lia; inversion H as [|? ? Hr Hb]; subst; specialize (IH b Hb).
  - unfold near, far in *. lia.
  - exact IH.
Qed.

(** No neuron has more steps than the inputs have, if these have at most 255. *)
Theorem steps_do_not_grow : forall l b, in_steps b -> in_steps (layer_box l b).
Proof.
  intros l b H. unfold in_steps, layer_box. apply Forall_forall. intros r Hr. apply in_map_iff in Hr as (n & <- & _).
  pose proof (width_does_not_grow (weights n) b H). rewrite fire_box_spec. cbn. lia.
Qed.

Definition byte_sides (s : option Z * option Z) : Prop :=
  (forall c, fst s = Some c -> byte c) /\ (forall c, snd s = Some c -> byte c).

Lemma byte_row_bytes : forall floor w b, in_steps b -> nearest w b <= floor -> Forall byte_sides (byte_row floor w b).
Proof.
  intros floor. induction w as [|o w IH]; intros [|r b] H Hf; cbn; try constructor; inversion H as [|? ? Hr Hb]; subst.
  - destruct o as [w0|]; [|split; intros c Hc; discriminate]. cbn in Hf. unfold near in Hf.
    split; intros c Hc; cbn in Hc;
      match type of Hc with (if ?t then _ else _) = _ => destruct t eqn:E; [injection Hc as <-|discriminate] end;
      apply Z.ltb_lt in E; unfold byte; lia.
  - apply IH; [exact Hb|]. destruct o; cbn in Hf; lia.
Qed.

(** All constants of a layer in bytes are bytes … *)
Theorem constants_are_bytes : forall l b, in_steps b -> Forall (Forall byte_sides) (byte_layer l b).
Proof.
  intros l b H. unfold byte_layer. apply Forall_forall. intros s Hs. apply in_map_iff in Hs as (n & <- & _).
  apply byte_row_bytes; [exact H | lia].
Qed.

(** … and so are all its values. *)
Theorem values_are_bytes : forall b x, in_steps b -> inside b x -> Forall byte (above b x).
Proof.
  intros b x Hs H. induction H as [|r a b x Hr _ IH]; cbn; constructor; inversion Hs; subst; auto.
  unfold in_range, byte in *. lia.
Qed.
