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

let offsets = Array.map (fun s -> Array.init 16 (fun i -> 8 * Char.code s.[i])) sigma

type t = {
  state : Bytes.t;
  work : Bytes.t;
  block : Bytes.t;
  mutable filled : int;
  mutable seen : int;
}

let get = Bytes.get_int64_le
let set = Bytes.set_int64_le

(* Words 0 to 15 of a block and of the work, which are 128 bytes long: [update] sees to it. *)
external get_here : Bytes.t -> int -> int64 = "%caml_bytes_get64u"
external set_here : Bytes.t -> int -> int64 -> unit = "%caml_bytes_set64u"
let () = assert (not Sys.big_endian)

let start () =
  let state = Bytes.create 64 in
  Array.iteri (fun i word -> set state (8 * i) word) iv;
  set state 0 (Int64.logxor iv.(0) 0x01010010L);
  { state; work = Bytes.create 128; block = Bytes.make 128 '\000'; filled = 0; seen = 0 }

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

let compress h m at last =
  let v = h.work in
  Bytes.blit h.state 0 v 0 64;
  Array.iteri (fun i word -> set v (64 + (8 * i)) word) iv;
  set v 96 (Int64.logxor (get v 96) (Int64.of_int h.seen));
  if last then set v 112 (Int64.lognot (get v 112));
  for round = 0 to 11 do
    let s = offsets.(round mod 10) in
    let word i = at + Array.unsafe_get s i in
    mix v 0 32 64 96 m (word 0) (word 1);
    mix v 8 40 72 104 m (word 2) (word 3);
    mix v 16 48 80 112 m (word 4) (word 5);
    mix v 24 56 88 120 m (word 6) (word 7);
    mix v 0 40 80 120 m (word 8) (word 9);
    mix v 8 48 88 96 m (word 10) (word 11);
    mix v 16 56 64 104 m (word 12) (word 13);
    mix v 24 32 72 112 m (word 14) (word 15)
  done;
  for i = 0 to 7 do
    let j = 8 * i in
    set h.state j (Int64.logxor (get h.state j) (Int64.logxor (get v j) (get v (64 + j))))
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

let finish h =
  h.seen <- h.seen + h.filled;
  Bytes.fill h.block h.filled (128 - h.filled) '\000';
  compress h h.block 0 true;
  String.concat "" (List.init 16 (fun i -> Printf.sprintf "%02x" (Char.code (Bytes.get h.state i))))
