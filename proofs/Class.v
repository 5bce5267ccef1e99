(** The class: the number of the largest logit, the first of them if there are several. And the margin. *)

From LinfDist Require Export Linf.

Section Argmax.
Context {A : Type} (less : A -> A -> bool).

(** Entry number [best], of value [top], leads so far; [z] are the entries from number [i] on. *)
Fixpoint leader (i best : nat) (top : A) (z : list A) : nat :=
  match z with
  | [] => best
  | a :: z => if less top a then leader (S i) i a z else leader (S i) best top z
  end.

Definition argmax (z : list A) : nat :=
  match z with
  | [] => 0%nat
  | a :: z => leader 1 0 a z
  end.

(** Entry [c] is larger than every other one. *)
Definition leads (c : nat) (z : list A) : Prop :=
  exists top, nth_error z c = Some top /\ forall j a, j <> c -> nth_error z j = Some a -> less a top = true.

Hypothesis less_asym : forall a b, less a b = true -> less b a = false.

Lemma leader_stays : forall z i best top, (forall a, In a z -> less a top = true) -> leader i best top z = best.
Proof.
  induction z as [|a z IH]; intros i best top H; [reflexivity|]. cbn.
  rewrite (less_asym a top) by (apply H; left; reflexivity). apply IH. intros b Hb. apply H. right. exact Hb.
Qed.

Lemma leader_found : forall z i best top c, less top (nth c z top) = true -> leads c z ->
  leader i best top z = (i + c)%nat.
Proof.
  induction z as [|a z IH]; intros i best top c Htop (t & Hc & Hothers); [destruct c; discriminate|].
  destruct c as [|c].
  - injection Hc as ->. cbn in *. rewrite Htop. rewrite leader_stays, Nat.add_0_r; [reflexivity|].
    intros b Hb. apply In_nth_error in Hb as (j & Hj). exact (Hothers (S j) b ltac:(discriminate) Hj).
  - cbn in Hc. assert (Ha : less a t = true) by (apply (Hothers 0%nat); [discriminate | reflexivity]).
    assert (Hleads : leads c z).
    { exists t. split; [exact Hc|]. intros j b Hj Hb. apply (Hothers (S j)); [congruence | exact Hb]. }
    cbn in *. rewrite Nat.add_succ_r, <- Nat.add_succ_l.
    rewrite (nth_error_nth _ _ _ Hc) in Htop.
    destruct (less top a); apply IH; try assumption; rewrite (nth_error_nth _ _ _ Hc); assumption.
Qed.

(** An entry that is larger than every other one is the argmax, whatever the rule for ties. *)
Theorem leads_argmax : forall c z, leads c z -> argmax z = c.
Proof.
  intros c [|a z] (t & Hc & Hothers); [destruct c; discriminate|]. cbn. destruct c as [|c].
  - injection Hc as ->. apply leader_stays. intros b Hb. apply In_nth_error in Hb as (j & Hj).
    exact (Hothers (S j) b ltac:(discriminate) Hj).
  - cbn in Hc. rewrite (leader_found z 1 0 a c); [reflexivity | |].
    + rewrite (nth_error_nth _ _ _ Hc). apply (Hothers 0%nat); [discriminate | reflexivity].
    + exists t. split; [exact Hc|]. intros j b Hj Hb. apply (Hothers (S j)); [congruence | exact Hb].
Qed.
End Argmax.

Lemma Zless_asym : forall a b, (a <? b) = true -> (b <? a) = false.
Proof. intros a b. rewrite Z.ltb_lt, Z.ltb_ge. lia. Qed.

(** For integers the argmax is what its name says: its entry is the largest, and larger than all before it. *)
Theorem argmax_is_the_first_largest : forall z, z <> [] ->
  exists top, nth_error z (argmax Z.ltb z) = Some top /\
    forall j a, nth_error z j = Some a -> a <= top /\ ((j < argmax Z.ltb z)%nat -> a < top).
Proof.
  assert (Hleader : forall z i best top,
    (best < i)%nat ->
    let c := leader Z.ltb i best top z in
    (c = best /\ (forall j a, nth_error z j = Some a -> a <= top)) \/
    (exists c' t, c = (i + c')%nat /\ nth_error z c' = Some t /\ top < t /\
      forall j a, nth_error z j = Some a -> a <= t /\ ((j < c')%nat -> a < t))).
  { induction z as [|a z IH]; intros i best top Hi; cbn.
    - left. split; [reflexivity|]. intros [|j] b H; discriminate.
    - destruct (top <? a) eqn:E; [apply Z.ltb_lt in E | apply Z.ltb_ge in E].
      + right. destruct (IH (S i) i a ltac:(lia)) as [[-> H]|(c' & t & -> & Hc & Ht & H)].
        * exists 0%nat, a. repeat split; try lia; try reflexivity.
          destruct j as [|j]; [injection H0 as <-; lia | apply (H j); assumption].
        * exists (S c'), t. repeat split; try lia; try assumption.
          -- destruct j as [|j]; [injection H0 as <-; lia | apply (H j); assumption].
          -- intros Hj. destruct j as [|j]; [injection H0 as <-; lia | apply (H j); [assumption | lia]].
      + destruct (IH (S i) best top ltac:(lia)) as [[-> H]|(c' & t & -> & Hc & Ht & H)].
        * left. split; [reflexivity|]. intros [|j] b Hb; [injection Hb as <-; lia | apply (H j); assumption].
        * right. exists (S c'), t. repeat split; try lia; try assumption.
          -- destruct j as [|j]; [injection H0 as <-; lia | apply (H j); assumption].
          -- intros Hj. destruct j as [|j]; [injection H0 as <-; lia | apply (H j); [assumption | lia]]. }
  intros [|a z] Hz; [contradiction|]. cbn [argmax].
  destruct (Hleader z 1%nat 0%nat a ltac:(lia)) as [[-> H]|(c' & t & -> & Hc & Ht & H)].
  - exists a. split; [reflexivity|]. intros [|j] b Hb; [injection Hb as <-; lia | split; [apply (H j); assumption | lia]].
  - exists t. split; [exact Hc|]. intros [|j] b Hb; [injection Hb as <-; lia|].
    split; [apply (H j); assumption | intros Hj; apply (H j); [assumption | lia]].
Qed.

(** ** The margin: the lead of entry c over the largest other one *)

Definition others {A} (c : nat) (z : list A) : list A := firstn c z ++ skipn (S c) z.
Definition margin (c : nat) (z : vec) : Z := nth c z 0 - largest (others c z).

Lemma others_in : forall A c (z : list A) j a, j <> c -> nth_error z j = Some a -> In a (others c z).
Proof.
  unfold others. intros A c z. revert c. induction z as [|b z IH]; intros c j a Hj Ha; [destruct j; discriminate|].
  destruct c as [|c].
  - destruct j as [|j]; [contradiction|]. cbn in *. eapply nth_error_In. exact Ha.
  - destruct j as [|j]; cbn in *.
    + left. injection Ha as ->. reflexivity.
    + right. apply (IH c j); [congruence | exact Ha].
Qed.

Lemma margin_leads : forall c z j a, j <> c -> nth_error z j = Some a -> a + margin c z <= nth c z 0.
Proof.
  intros c z j a Hj Ha. pose proof (largest_ge _ _ (others_in _ _ _ _ _ Hj Ha)). unfold margin. lia.
Qed.
