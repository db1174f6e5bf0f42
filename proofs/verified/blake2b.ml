(* BLAKE2b (RFC 7693) with a digest of 16 bytes and no key. *)

let iv =
  [| 0x6A09E667F3BCC908L; 0xBB67AE8584CAA73BL; 0x3C6EF372FE94F82BL; 0xA54FF53A5F1D36F1L;
     0x510E527FADE682D1L; 0x9B05688C2B3E6C1FL; 0x1F83D9ABFB41BD6BL; 0x5BE0CD19137E2179L |]

let sigma =
  [| "\000\001\002\003\004\005\006\007\008\009\010\011\012\013\014\015";
     "\014\010\004\008\009\015\013\006\001\012\000\002\011\007\005\003";
     "\011\008\012\000\005\002\015\013\010\014\003\006\007\001\009\004";
     "\007\009\003\001\013\012\011\014\002\006\005\010\004\000\015\008";
     "\009\000\005\007\002\004\010\015\014\001\011\012\006\008\003\013";
     "\002\012\006\010\000\011\008\003\004\013\007\005\015\014\001\009";
     "\012\005\001\015\014\013\004\010\000\007\006\003\009\002\008\011";
     "\013\011\007\014\012\001\003\009\005\000\015\004\008\006\002\010";
     "\006\015\014\009\011\003\000\008\012\002\013\007\001\004\010\005";
     "\010\002\008\004\007\006\001\005\015\011\009\014\003\012\013\000" |]

let rounds = Array.map (fun s -> Array.init 16 (fun i -> Char.code s.[i])) sigma

(* Arrays of words are read in one step on every machine, which strings are not. *)
type words = (int64, Bigarray.int64_elt, Bigarray.c_layout) Bigarray.Array1.t

let words n : words = Bigarray.(Array1.init int64 c_layout n (fun _ -> 0L))

type t = {
  state : words;  (* 8 *)
  work : words;  (* 16 *)
  message : words;  (* 16 *)
  block : Bytes.t;
  mutable filled : int;
  mutable seen : int;
}

let get : words -> int -> int64 = Bigarray.Array1.get
let set : words -> int -> int64 -> unit = Bigarray.Array1.set

(* Words 0 to 15 of the message and of the work, which have 16: all indices are those below. *)
external get_here : words -> int -> int64 = "%caml_ba_unsafe_ref_1"
external set_here : words -> int -> int64 -> unit = "%caml_ba_unsafe_set_1"

let start () =
  let state = words 8 in
  Array.iteri (set state) iv;
  set state 0 (Int64.logxor iv.(0) 0x01010010L);
  let block = Bytes.make 128 '\000' in
  { state; work = words 16; message = words 16; block; filled = 0; seen = 0 }

let mix v a b c d m x y =
  let open Int64 in
  let va = add (add (get_here v a) (get_here v b)) (get_here m x) in
  let e = logxor (get_here v d) va in
  let vd = logor (shift_right_logical e 32) (shift_left e 32) in
  let vc = add (get_here v c) vd in
  let e = logxor (get_here v b) vc in
  let vb = logor (shift_right_logical e 24) (shift_left e 40) in
  let va = add (add va vb) (get_here m y) in
  let e = logxor vd va in
  let vd = logor (shift_right_logical e 16) (shift_left e 48) in
  let vc = add vc vd in
  let e = logxor vb vc in
  let vb = logor (shift_right_logical e 63) (shift_left e 1) in
  set_here v a va;
  set_here v b vb;
  set_here v c vc;
  set_here v d vd

(* The 128 bytes of [data] from [at] on. *)
let compress h data at last =
  let v = h.work and m = h.message in
  for i = 0 to 15 do set m i (Bytes.get_int64_le data (at + (8 * i))) done;
  for i = 0 to 7 do set v i (get h.state i); set v (8 + i) iv.(i) done;
  set v 12 (Int64.logxor (get v 12) (Int64.of_int h.seen));
  if last then set v 14 (Int64.lognot (get v 14));
  for round = 0 to 11 do
    let s = rounds.(round mod 10) in
    mix v 0 4 8 12 m s.(0) s.(1);
    mix v 1 5 9 13 m s.(2) s.(3);
    mix v 2 6 10 14 m s.(4) s.(5);
    mix v 3 7 11 15 m s.(6) s.(7);
    mix v 0 5 10 15 m s.(8) s.(9);
    mix v 1 6 11 12 m s.(10) s.(11);
    mix v 2 7 8 13 m s.(12) s.(13);
    mix v 3 4 9 14 m s.(14) s.(15)
  done;
  for i = 0 to 7 do
    set h.state i (Int64.logxor (get h.state i) (Int64.logxor (get v i) (get v (8 + i))))
  done

(* A block is compressed when more is to come: the last one is marked. *)
let rec update h data at length =
  if at < 0 || length > Bytes.length data - at then invalid_arg "Blake2b.update";
  if length > 0 then
    if h.filled = 0 && length > 128 then begin
      h.seen <- h.seen + 128;
      compress h data at false;
      update h data (at + 128) (length - 128)
    end
    else begin
      if h.filled = 128 then begin
        h.seen <- h.seen + 128;
        compress h h.block 0 false;
        h.filled <- 0
      end;
      let n = min length (128 - h.filled) in
      Bytes.blit data at h.block h.filled n;
      h.filled <- h.filled + n;
      update h data (at + n) (length - n)
    end

let update_string h text = update h (Bytes.unsafe_of_string text) 0 (String.length text)

(* The bytes of a word in the order in which they stand in memory. *)
let swapped word =
  let octets = Bytes.create 8 in
  Bytes.set_int64_le octets 0 word;
  Bytes.get_int64_be octets 0

let finish h =
  h.seen <- h.seen + h.filled;
  Bytes.fill h.block h.filled (128 - h.filled) '\000';
  compress h h.block 0 true;
  Printf.sprintf "%016Lx%016Lx" (swapped (get h.state 0)) (swapped (get h.state 1))

let of_string text =
  let hash = start () in
  update_string hash text;
  finish hash
