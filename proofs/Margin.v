(** What keeps the class, for 8-bit images: a margin, or a box. *)

From LinfDist Require Export Network.

Lemma Forall2_nth : forall A B (R : A -> B -> Prop) x y, Forall2 R x y ->
  forall j b, nth_error y j = Some b -> exists a, nth_error x j = Some a /\ R a b.
Proof.
  intros A B R x y H. induction H; intros [|j] b' Hb; try discriminate.
  - injection Hb as <-. eexists. split; [reflexivity | assumption].
  - cbn in *. apply IHForall2, Hb.
Qed.

Lemma nth_exists : forall A (z : list A) c, (c < length z)%nat -> exists a, nth_error z c = Some a.
Proof.
  intros A z c H. destruct (nth_error z c) eqn:E; [eauto|]. apply nth_error_None in E. lia.
Qed.

(** If class c leads by more than 2 · steps · n, it is the class of everything within n levels: two logits approach each
    other by at most 2 · steps · n (Fact 3.6 of the paper). *)
Theorem margin_keeps_class : forall net x c n y,
  (c < length (logits net x))%nat -> 0 <= n ->
  2 * steps net * n < margin c (logits net x) -> close n x y -> class_of net y = c.
Proof.
  intros net x c n y Hc Hn Hm Hy. apply (leads_argmax _ Zless_asym).
  pose proof (network_lipschitz net n x y Hn Hy) as H.
  destruct (nth_exists _ (logits net y) c) as [top Htop]; [rewrite <- (close_length _ _ _ H); exact Hc|].
  exists top. split; [exact Htop|]. intros j b Hj Hb. apply Z.ltb_lt.
  destruct (Forall2_nth _ _ _ _ _ H _ _ Htop) as (top' & Htop' & Hclose).
  destruct (Forall2_nth _ _ _ _ _ H _ _ Hb) as (a & Ha & Hclose').
  pose proof (margin_leads c _ j a Hj Ha) as Hlead. rewrite (nth_error_nth _ _ 0 Htop') in Hlead. lia.
Qed.

(** The ranges of the outputs prove class c: the least output of every other class is above the largest of c, hence its
    logit below. *)
Definition holds (c : nat) (b : box) : bool :=
  match nth_error b c with
  | Some r => forallb (fun other => snd r <? fst other) (others c b)
  | None => false
  end.

Lemma Forall2_nth' : forall A B (R : A -> B -> Prop) x y, Forall2 R x y ->
  forall j a, nth_error x j = Some a -> exists b, nth_error y j = Some b /\ R a b.
Proof.
  intros A B R x y H. induction H; intros [|j] a' Ha; try discriminate.
  - injection Ha as <-. eexists. split; [reflexivity | assumption].
  - cbn in *. apply IHForall2, Ha.
Qed.

Theorem box_keeps_class : forall net c b y,
  holds c (run_box (stages net) b) = true -> inside b y -> class_of net y = c.
Proof.
  intros net c b y Hh Hy. apply (leads_argmax _ Zless_asym).
  pose proof (run_enclosed (stages net) b y Hy) as H. unfold holds in Hh.
  destruct (nth_error _ c) as [r|] eqn:Er; [|discriminate].
  destruct (Forall2_nth' _ _ _ _ _ H _ _ Er) as (t & Ht & Hr).
  exists (- t). unfold logits. split; [apply map_nth_error, Ht|]. intros j a Hj Ha. apply Z.ltb_lt.
  rewrite nth_error_map in Ha. destruct (nth_error _ j) as [o|] eqn:Eo; [injection Ha as <-|discriminate].
  destruct (Forall2_nth _ _ _ _ _ H _ _ Eo) as (r' & Er' & Hr').
  rewrite forallb_forall in Hh. specialize (Hh _ (others_in _ _ _ _ _ Hj Er')). apply Z.ltb_lt in Hh.
  unfold in_range in *. lia.
Qed.
