(** * The checker as OCaml: [make] in this folder builds `railopt-verified` from it

    What is trusted beyond Coq's extraction: that the functions of [integer.ml] and zarith are the
    functions of Coq that they stand for. *)
From Coq Require Import Arith NArith List Bool.
From Coq Require Import Extraction ExtrOcamlBasic.
From Rails Require Import Program.
Extraction Language OCaml.

Extract Inductive nat => "Integer.t" [ "Z.zero" "Z.succ" ] "Integer.nat_match".
Extract Inductive positive => "Integer.t" [ "Integer.twice_plus_one" "Integer.twice" "Z.one" ] "Integer.positive_match".
Extract Inductive N => "Integer.t" [ "Z.zero" "" ] "Integer.n_match".

Extract Inlined Constant Nat.add => "Z.add".
Extract Inlined Constant Init.Nat.add => "Z.add".
Extract Inlined Constant Nat.eqb => "Z.equal".
Extract Inlined Constant Nat.leb => "Z.leq".
Extract Inlined Constant Nat.ltb => "Z.lt".
Extract Inlined Constant Nat.min => "Z.min".
Extract Inlined Constant Nat.eq_dec => "Z.equal".
Extract Inlined Constant N.of_nat => "".
Extract Inlined Constant N.to_nat => "".

Extract Inlined Constant N.add => "Z.add".
Extract Inlined Constant N.sub => "Integer.sub".
Extract Inlined Constant N.mul => "Z.mul".
Extract Inlined Constant N.div => "Integer.div".
Extract Inlined Constant N.modulo => "Integer.modulo".
Extract Inlined Constant N.eqb => "Z.equal".
Extract Inlined Constant N.leb => "Z.leq".
Extract Inlined Constant N.ltb => "Z.lt".
Extract Inlined Constant N.eq_dec => "Z.equal".
Extract Constant N.compare => "(fun a b -> let c = Z.compare a b in if c = 0 then Eq else if c < 0 then Lt else Gt)".
Extract Inlined Constant N.min => "Z.min".
Extract Inlined Constant N.max => "Z.max".
Extract Inlined Constant N.gcd => "Z.gcd".
Extract Inlined Constant N.odd => "Integer.odd".
Extract Inlined Constant N.div2 => "Integer.div2".
Extract Inlined Constant N.log2 => "Integer.log2".
Extract Inlined Constant N.log2_up => "Integer.log2_up".
Extract Inlined Constant N.land => "Z.logand".
Extract Inlined Constant N.lor => "Z.logor".
Extract Inlined Constant N.shiftl => "Integer.shiftl".
Extract Inlined Constant N.testbit => "Integer.testbit".
Extract Inlined Constant N.setbit => "Integer.setbit".
Extract Inlined Constant N.ones => "Integer.ones".

Extract Inlined Constant andb => "(&&)".
Extract Inlined Constant orb => "(||)".

Extraction "checker.ml" verdict plan_verdict refutation_verdict fast_verdict flow_verdict chunk_of unit_of transfer_of share_of.
