(** Nothing overflows: executed in integers of 16 or 32 bits, which wrap round, a network that passes the checks of
    docs/format.md computes the same. *)

From LinfDist Require Export Prune.

(** Two's complement of so many bits. *)
Definition wrap (bits z : Z) : Z := (z + 2 ^ (bits - 1)) mod 2 ^ bits - 2 ^ (bits - 1).
Definition limit (bits : Z) : Z := 2 ^ (bits - 1) - 1.

(** ** The network as a machine executes it: every result wraps *)

Fixpoint machine_dist (bits : Z) (w : row) (x : vec) : Z :=
  match w, x with
  | Some w0 :: w, x0 :: x =>
      let difference := wrap bits (wrap bits x0 - wrap bits w0) in
      Z.max (wrap bits (Z.abs difference)) (machine_dist bits w x)
  | None :: w, _ :: x => machine_dist bits w x
  | _, _ => 0
  end.

Definition machine_layer (l : layer) (x : vec) : vec :=
  map (fun n => wrap (bits l) (machine_dist (bits l) (weights n) x + wrap (bits l) (bias n))) (neurons l).

(** Sums are in 32 bits. That partial sums wrap too makes no difference: see [wrap_add]. *)
Definition machine_stage (s : stage) (x : vec) : vec :=
  match s with
  | Dist l => machine_layer l x
  | _ => map (wrap 32) (stage_out s x)
  end.

Fixpoint machine_run (stages : list stage) (x : vec) : vec :=
  match stages with
  | [] => x
  | s :: stages => machine_run stages (machine_stage s x)
  end.

(** ** The checks of docs/format.md *)

Definition small (m z : Z) : bool := Z.abs z <=? m.
Definition small_box (m : Z) (b : box) : bool :=
  forallb (fun r => small m (fst r) && small m (snd r) && (snd r - fst r <=? m)) b.
Definition small_row (m : Z) (w : row) : bool :=
  forallb (fun o => match o with Some w0 => small m w0 | None => true end) w.

(** A neuron: one entry for each input, one of them kept; its values fit; what was left out cannot win. *)
Definition kept (o : option Z) : bool := match o with Some _ => true | None => false end.
Definition neuron_valid (m : Z) (b : box) (n : neuron) : bool :=
  (length (weights n) =? length b)%nat && existsb kept (weights n) &&
  small_row m (weights n) && (farthest (weights n) b + Z.abs (bias n) <=? m) && lossless n b.

Definition layer_valid (l : layer) (b : box) : bool :=
  ((bits l =? 16) || (bits l =? 32)) && small_box (limit (bits l)) b &&
  forallb (neuron_valid (limit (bits l)) b) (neurons l).

Definition stage_valid (s : stage) (b : box) : bool :=
  match s with
  | Dist l => layer_valid l b
  | _ => forallb (fun r => small (limit 32) (fst r) && small (limit 32) (snd r)) (stage_box s b)
  end.

Fixpoint run_valid (stages : list stage) (b : box) : bool :=
  match stages with
  | [] => true
  | s :: stages => stage_valid s b && run_valid stages (stage_box s b)
  end.

(** ** Nothing overflows *)

Lemma wrap_small : forall bits z, 0 < bits -> Z.abs z <= limit bits -> wrap bits z = z.
Proof.
  unfold wrap, limit. intros bits z Hb Hz.
  replace (2 ^ bits) with (2 * 2 ^ (bits - 1)) by (rewrite <- Z.pow_succ_r by lia; f_equal; lia).
  rewrite Z.mod_small; lia.
Qed.

(** Wrapping on the way does not change a sum that is wrapped in the end. *)
Lemma wrap_add : forall bits a b, 0 < bits -> wrap bits (wrap bits a + b) = wrap bits (a + b).
Proof.
  unfold wrap. intros bits a b Hb. assert (0 < 2 ^ bits) by (apply Z.pow_pos_nonneg; lia). f_equal.
  replace ((a + 2 ^ (bits - 1)) mod 2 ^ bits - 2 ^ (bits - 1) + b + 2 ^ (bits - 1))
    with ((a + 2 ^ (bits - 1)) mod 2 ^ bits + b) by ring.
  rewrite Zplus_mod_idemp_l. f_equal. ring.
Qed.

Lemma machine_dist_same : forall bits w b x, 0 < bits ->
  small_box (limit bits) b = true -> small_row (limit bits) w = true -> farthest w b <= limit bits ->
  inside b x -> machine_dist bits w x = dist w x.
Proof.
  intros bits. induction w as [|[w0|] w IH]; intros b x Hbits Hb Hw Hf Hx; destruct Hx as [|r a b x Hr Hx]; cbn in *;
    try reflexivity.
  - apply andb_prop in Hb as [Hr' Hb]. apply andb_prop in Hw as [Hw0 Hw]. apply andb_prop in Hr' as [Hr' _].
    apply andb_prop in Hr' as [Hl Hh]. unfold small in *. apply Z.leb_le in Hl, Hh, Hw0.
    pose proof (near_far r w0 a Hr). unfold in_range in Hr.
    rewrite (wrap_small bits a), (wrap_small bits w0) by lia.
    rewrite (wrap_small bits (a - w0)) by lia. rewrite (wrap_small bits (Z.abs _)) by lia.
    rewrite (IH b x); auto. lia.
  - apply andb_prop in Hb as [_ Hb]. apply (IH b); auto.
Qed.

Lemma layer_valid_bits : forall l b, layer_valid l b = true -> 0 < bits l.
Proof.
  intros l b H. unfold layer_valid in H. apply andb_prop in H as [H _]. apply andb_prop in H as [H _].
  apply orb_prop in H as [H|H]; apply Z.eqb_eq in H; lia.
Qed.

Theorem layer_does_not_overflow : forall l b x, layer_valid l b = true -> inside b x -> machine_layer l x = layer_out l x.
Proof.
  intros l b x H Hx. pose proof (layer_valid_bits l b H) as Hbits. unfold layer_valid in H.
  apply andb_prop in H as [H Hn]. apply andb_prop in H as [_ Hb]. unfold machine_layer, layer_out.
  apply map_ext_in. intros n Hin. rewrite forallb_forall in Hn. specialize (Hn n Hin). unfold neuron_valid in Hn.
  apply andb_prop in Hn as [Hn _]. apply andb_prop in Hn as [Hn Hf]. apply andb_prop in Hn as [_ Hw].
  apply Z.leb_le in Hf. pose proof (dist_enclosed (weights n) b x Hx). pose proof (dist_nonneg (weights n) x).
  rewrite (machine_dist_same _ _ b) by (auto; lia). unfold fire.
  rewrite (wrap_small _ (bias n)) by lia. apply wrap_small; lia.
Qed.

Lemma wrap_small_box : forall bits b x, 0 < bits ->
  forallb (fun r => small (limit bits) (fst r) && small (limit bits) (snd r)) b = true ->
  inside b x -> map (wrap bits) x = x.
Proof.
  intros bits b x Hbits H Hx. induction Hx as [|r a b x Hr _ IH]; [reflexivity|]. cbn in *.
  apply andb_prop in H as [Hends H]. apply andb_prop in Hends as [Hl Hh]. unfold small in *. apply Z.leb_le in Hl, Hh.
  unfold in_range in Hr. rewrite (IH H), wrap_small by lia. reflexivity.
Qed.

(** On every image of the domain, a network that passes the checks computes the same in wrapping integers. *)
Theorem nothing_overflows : forall l b x, run_valid l b = true -> inside b x -> machine_run l x = run l x.
Proof.
  induction l as [|s l IH]; intros b x H Hx; cbn; [reflexivity|]. cbn in H. apply andb_prop in H as [Hs H].
  assert (E : machine_stage s x = stage_out s x).
  { destruct s; cbn [machine_stage]; try (apply (layer_does_not_overflow _ b); assumption);
      (eapply wrap_small_box; [lia | exact Hs | apply stage_enclosed, Hx]). }
  rewrite E. apply (IH (stage_box s b)); [exact H | apply stage_enclosed, Hx].
Qed.

(** The form without masks computes the same, too, and does not overflow either. *)
Lemma small_dense_row : forall m w b, small_box m b = true -> small_row m w = true -> small_row m (dense_row w b) = true.
Proof.
  intros m. induction w as [|[w0|] w IH]; intros [|r b] Hb Hw; cbn in *; auto; apply andb_prop in Hb as [Hr Hb].
  - apply andb_prop in Hw as [-> Hw]. apply (IH b Hb Hw).
  - fold (small_row m (dense_row w b)). rewrite (IH b Hb Hw), andb_true_r. apply andb_prop in Hr as [Hr _]. apply andb_prop in Hr as [Hl Hh].
    unfold small in *. apply Z.leb_le in Hl, Hh. apply Z.leb_le. lia.
Qed.

Lemma farthest_dense_row : forall w b, farthest (dense_row w b) b <= Z.max (farthest w b) (left_out w b).
Proof.
  unfold left_out. induction w as [|[w0|] w IH]; intros [|r b]; cbn [farthest dense_row widest]; try lia;
    specialize (IH b); [lia|]. pose proof (far_middle r). lia.
Qed.

Lemma nearest_below_farthest : forall w b x, inside b x -> nearest w b <= farthest w b.
Proof. intros w b x H. pose proof (dist_enclosed w b x H). lia. Qed.

Theorem dense_layer_does_not_overflow : forall l b x, layer_valid l b = true -> inside b x ->
  machine_layer (dense_layer l b) x = layer_out l x.
Proof.
  intros l b x H Hx. pose proof (layer_valid_bits l b H) as Hbits. unfold layer_valid in H.
  apply andb_prop in H as [H Hn]. apply andb_prop in H as [_ Hb]. rewrite forallb_forall in Hn.
  rewrite <- (dense_is_the_same l b x); [|intros n Hin; specialize (Hn n Hin); unfold neuron_valid in Hn|exact Hx].
  - unfold machine_layer, layer_out, dense_layer. cbn [neurons bits]. rewrite !map_map. apply map_ext_in. intros n Hin.
    specialize (Hn n Hin). unfold neuron_valid in Hn. cbn [weights bias].
    apply andb_prop in Hn as [Hn Hl]. apply andb_prop in Hn as [Hn Hf]. apply andb_prop in Hn as [_ Hw].
    apply Z.leb_le in Hf. unfold lossless in Hl. apply Z.leb_le in Hl.
    pose proof (farthest_dense_row (weights n) b). pose proof (nearest_below_farthest (weights n) b x Hx).
    pose proof (dist_enclosed (dense_row (weights n) b) b x Hx). pose proof (dist_nonneg (dense_row (weights n) b) x).
    rewrite (machine_dist_same _ _ b); auto; [|apply small_dense_row; assumption|lia]. unfold fire. cbn [weights bias].
    rewrite (wrap_small _ (bias n)) by lia. apply wrap_small; lia.
  - apply andb_prop in Hn as [Hn Hl]. repeat apply andb_prop in Hn as [Hn _]. apply Nat.eqb_eq in Hn. auto.
Qed.
