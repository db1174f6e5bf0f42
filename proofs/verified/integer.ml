(* Coq's numbers as zarith's integers: what [Extract.v] puts in place of each of Coq's functions.
   Part of what is trusted.  Values of [nat] and [N] are at least 0, of [positive] at least 1. *)

type t = Z.t

let nat_match zero next n = if Z.sign n <= 0 then zero () else next (Z.pred n)
let n_match zero some n = if Z.sign n <= 0 then zero () else some n

let positive_match odd even one p =
  if Z.equal p Z.one then one ()
  else if Z.is_odd p then odd (Z.shift_right p 1)
  else even (Z.shift_right p 1)

let twice p = Z.shift_left p 1
let twice_plus_one p = Z.succ (twice p)

(* N.sub and Nat.sub end at 0; N.div and N.modulo by 0 are 0 and the number itself. *)
let sub a b = if Z.leq a b then Z.zero else Z.sub a b
let div a b = if Z.sign b = 0 then Z.zero else Z.div a b
let modulo a b = if Z.sign b = 0 then a else Z.rem a b

(* zarith's own short cut, without its call: a number of at most 62 bits is a machine integer. *)
let small (a : Z.t) = Obj.is_int (Obj.repr a)
let odd a = if small a then (Obj.magic a : int) land 1 = 1 else Z.is_odd a
let div2 a = if small a then (Obj.magic ((Obj.magic a : int) asr 1) : Z.t) else Z.shift_right a 1
let shiftl a b = Z.shift_left a (Z.to_int b)
let ones n = Z.pred (Z.shift_left Z.one (Z.to_int n))
let log2 n = if Z.sign n <= 0 then Z.zero else Z.of_int (Z.log2 n)
let log2_up n = if Z.leq n Z.one then Z.zero else Z.of_int (Z.log2up n)
let testbit a b = Z.testbit a (Z.to_int b)
let setbit a b = Z.logor a (Z.shift_left Z.one (Z.to_int b))
