(* Certificates: JSON as the input of the checker.  Raises [Plan.Wrong] for what has another form
   than railopt/checker.py expects. *)

open Checker
open Json

let wrong = Plan.wrong
let words text = List.filter (fun w -> w <> "") (String.split_on_char ' ' text)

(* The fields of an object that has every required key and no unknown one. *)
let fields where required optional = function
  | Obj pairs ->
      let known = words required @ words optional in
      if List.for_all (fun k -> List.mem_assoc k pairs) (words required)
         && List.for_all (fun (k, _) -> List.mem k known) pairs
      then pairs
      else wrong (Printf.sprintf "%s: expected the fields %s" where required)
  | _ -> wrong (where ^ ": expected an object")

let get = List.assoc
let find key pairs = List.assoc_opt key pairs
let largest = Z.shift_left Z.one 4096

let natural where = function
  | Int n when Z.sign n >= 0 && Z.leq n largest -> n
  | _ -> wrong (where ^ ": expected a whole number in its range")

let positive where value =
  let n = natural where value in
  if Z.sign n = 0 then wrong (where ^ ": expected at least 1") else n

let naturals where = function
  | List values -> List.rev (List.rev_map (natural where) values)
  | _ -> wrong (where ^ ": expected a list of whole numbers")

let rows where = function
  | List (_ :: _ as values) -> List.map (naturals where) values
  | _ -> wrong (where ^ ": expected some rows")

(* "p" or "p/q" with a denominator above 0; leading zeros are let pass. *)
let fraction where value =
  let bad () = wrong (where ^ ": expected \"p\" or \"p/q\"") in
  let number low high text =
    let n = String.length text in
    if n < low || n > high || not (String.for_all is_digit text) then bad ();
    Z.of_string text in
  match value with
  | Str text when String.length text < 3 * digits -> (
      match String.split_on_char '/' text with
      | [ p ] -> (number 1 digits p, Z.one)
      | [ p; q ] ->
          let q = number 1 (3 * digits) q in
          if Z.sign q = 0 then bad () else (number 1 digits p, q)
      | _ -> bad ())
  | _ -> bad ()

let kind_of = function
  | Obj pairs -> ( match find "kind" pairs with Some (Str kind) -> kind | _ -> "")
  | _ -> ""

(* ---------------------------------------------------------------- witnesses *)

let pair = function [ a; b ] -> (a, b) | _ -> wrong "weights: expected 2 numbers in every row"
let weights value = List.map pair (rows "weights" value)

let reason value =
  let kind = kind_of value in
  let read required optional =
    fields ("witness " ^ kind) ("kind " ^ required) ("capacity " ^ optional) value in
  let stated pairs = Option.map (natural "capacity") (find "capacity" pairs) in
  match kind with
  | "average" -> Mean (stated (read "" ""))
  | "pigeonhole" ->
      let w = read "jobs rails" "" in
      Pigeons (stated w, natural "jobs" (get "jobs" w), natural "rails" (get "rails" w))
  | "count" ->
      let w = read "jobs" "" in
      Counts (stated w, natural "jobs" (get "jobs" w))
  | "dual" ->
      let w = read "weights" "" in
      Weighs (stated w, weights (get "weights" w))
  | "cover" -> Covers (stated (read "" ""))
  | _ -> wrong "a witness of unknown kind"

(* Whose word a bound rests on, if it rests on one. *)
let rec claimant value =
  match (kind_of value, value) with
  | "node", Obj pairs -> ( match find "witness" pairs with Some w -> claimant w | None -> None)
  | "claimed", _ -> (
      match get "by" (fields "witness" "kind by" "" value) with
      | Str by when by <> "" && String.length by <= 200 -> Some by
      | _ -> wrong "claimed by nobody: expected a name and a version")
  | _ -> None

let side = function
  | Str "send" -> Send
  | Str "recv" -> Receive
  | _ -> wrong "side: expected send or recv"

let coupled_evidence value =
  match kind_of value with
  | "node" ->
      let w = fields "witness node" "kind node side witness" "" value in
      let side = side (get "side" w) and inner = get "witness" w in
      ("node " ^ kind_of inner, Of_side (side, natural "node" (get "node" w), reason inner))
  | "joint" ->
      let w = fields "witness joint" "kind send recv" "" value in
      ("joint", Of_sides (naturals "send" (get "send" w), naturals "recv" (get "recv" w)))
  | "fluid" ->
      let w = fields "witness fluid" "kind send recv" "" value in
      ("fluid", Of_prices (rows "send" (get "send" w), rows "recv" (get "recv" w)))
  | "whole" ->
      let w = fields "witness whole" "kind send recv" "" value in
      ("whole", Of_whole (rows "send" (get "send" w), rows "recv" (get "recv" w)))
  | _ -> wrong "a witness of unknown kind"

(* What kind of bound it is, and its evidence where it has any. *)
let evidence value checked =
  match claimant value with
  | Some by -> ("claimed by " ^ by, None)
  | None -> let kind, e = checked value in (kind, Some e)

(* ---------------------------------------------------------------- problems *)

let digest_text = function
  | Str text -> String.length text = 0 || (String.length text = 32 && String.for_all
      (fun c -> is_digit c || (c >= 'a' && c <= 'f')) text)
  | _ -> false

let traffic problem =
  match find "traffic" problem with
  | Some value when not (digest_text value) ->
      wrong "traffic: expected a digest of 32 hexadecimal digits"
  | Some _ when List.mem_assoc "plan" problem ->
      wrong "traffic beside a plan, whose chunks say what it sends: leave it out"
  | _ -> ()

let named directory value =
  let plan = fields "plan" "file digest" "" value in
  match (get "file" plan, get "digest" plan) with
  | Str name, digest when name <> "" && not (String.contains name '/') ->
      let found = Plan.read (Filename.concat directory name) in
      if digest <> Str found.digest then
        wrong (name ^ " is not the plan that the certificate names");
      found
  | _ -> wrong "plan: expected a file beside the certificate"

let columns src dst size =
  if List.compare_lengths src dst <> 0 || List.compare_lengths src size <> 0 then
    wrong "chunks: columns of different lengths";
  let rec zip src dst size found = match (src, dst, size) with
    | s :: src, d :: dst, z :: size -> zip src dst size (chunk_of s d z :: found)
    | _ -> List.rev found in
  zip src dst size []

let assignment record =
  Option.map (fun a -> Rails (naturals "assignment" a)) (find "assignment" record)

let best_rails value =
  Rails (naturals "best" (get "assignment" (fields "best" "assignment" "" value)))

let absent record key why = if List.mem_assoc key record then wrong why

let local record _ =
  let problem = fields "problem" "kind sizes" "rails speeds traffic" (get "problem" record) in
  let speeds = match (find "rails" problem, find "speeds" problem) with
    | Some n, None ->
        let n = positive "rails" n in
        if Z.gt n (Z.of_int (1 lsl 20)) then wrong "rails: too many";
        List.init (Z.to_int n) (fun _ -> Z.one)
    | None, Some speeds -> naturals "speeds" speeds
    | _ -> wrong "problem: expected rails or speeds" in
  let sizes = naturals "sizes" (get "sizes" problem) in
  let checked w = (kind_of w, Of_jobs (reason w)) in
  let other = Option.map best_rails (find "best" record) in
  (Jobs_on (speeds, sizes), evidence (get "witness" record) checked, assignment record, other)

let coupled record directory =
  absent record "flow" "a flow is for divisible traffic";
  let optional = "chunks plan traffic" in
  let problem = fields "problem" "kind nodes rails tx rx" optional (get "problem" record) in
  let nodes = positive "nodes" (get "nodes" problem) in
  let rails = positive "rails" (get "rails" problem) in
  let tx = rows "tx" (get "tx" problem) and rx = rows "rx" (get "rx" problem) in
  let cs, own, planned = match (find "chunks" problem, find "plan" problem) with
    | Some chunks, None ->
        let c = fields "chunks" "src dst size" "" chunks in
        let column name = naturals name (get name c) in
        (columns (column "src") (column "dst") (column "size"), assignment record, None)
    | None, Some plan ->
        absent record "assignment" "an assignment beside a plan";
        let found = named directory plan in
        (found.file.file_chunks, Some (In_file found.file), Some found)
    | _ -> wrong "problem: expected chunks or a plan" in
  let best value = match value with
    | Obj pairs when List.mem_assoc "file" pairs ->
        let found = named directory value in
        if not (Option.fold ~none:true ~some:(Plan.same_chunks found) planned) then
          wrong "best: a plan of chunks that are not those of this plan";
        In_file found.file
    | _ -> best_rails value in
  let other = Option.map best (find "best" record) in
  let witness = get "witness" record in
  let kind, because = evidence witness coupled_evidence in
  let lifted = if because = None && kind_of witness = "node" then "node " else "" in
  (Chunks_between (nodes, rails, tx, rx, cs), (lifted ^ kind, because), own, other)

let size_of rows = (Z.of_int (List.length rows), Z.of_int (List.length (List.hd rows)))

let fluid record _ =
  absent record "best" "divisible traffic has one flow, no best plan beside it";
  let problem = fields "problem" "kind tx rx demand" "traffic" (get "problem" record) in
  let tx = rows "tx" (get "tx" problem) and rx = rows "rx" (get "rx" problem) in
  let nodes, rails = size_of tx in
  let prices w =
    if kind_of w <> "fluid" then wrong "witness: expected fluid or claimed";
    coupled_evidence w in
  let flow value =
    let f = fields "flow" "unit src dst rail amount" "" value in
    let column name = naturals name (get name f) in
    let parcels = columns (column "src") (column "dst") (column "amount") in
    Divided (positive "unit" (get "unit" f), parcels, column "rail") in
  let own = Option.map flow (find "flow" record) in
  (Bytes_between (nodes, rails, tx, rx, rows "demand" (get "demand" problem)),
   evidence (get "witness" record) prices, own, None)

(* A set of GPUs of a node, or of experts, as a number: bit g stands for g. *)
let set_of where many value =
  let add set g =
    if Z.geq g many then wrong (where ^ ": a GPU or an expert that there is not")
    else Z.logor set (Z.shift_left Z.one (Z.to_int g)) in
  List.fold_left add Z.zero (naturals where value)

let listed where = function List values -> values | _ -> wrong (where ^ ": expected a list")

let gpus_of value =
  let gpus = positive "gpus" value in
  if Z.gt gpus (Z.of_int 4096) then wrong "gpus: too many" else gpus

let units_listed gpus value =
  let u = fields "units" "src_gpu dst size targets" "" value in
  let column name = naturals name (get name u) in
  let rec zip src dst size targets found = match (src, dst, size, targets) with
    | s :: src, d :: dst, z :: size, t :: targets ->
        zip src dst size targets (unit_of s d z (set_of "targets" gpus t) :: found)
    | [], [], [], [] -> List.rev found
    | _ -> wrong "units: columns of different lengths" in
  zip (column "src_gpu") (column "dst") (column "size") (listed "targets" (get "targets" u)) []

(* The set of targets in a row of bits, the first bit of an octet being its highest. *)
let row_set gpus row =
  let set = ref Z.zero in
  for g = 0 to gpus - 1 do
    if (Char.code row.[g / 8] lsr (7 - (g mod 8))) land 1 = 1 then
      set := Z.logor !set (Z.shift_left Z.one g)
  done;
  !set

(* What a plan says of its nodes: GPUs, and those near each rail unless in the usual order. *)
let node_planned (plan : Plan.t) =
  let fabric = match get "fabric" plan.header with Obj fabric -> fabric | _ -> [] in
  let gpus = gpus_of (get "gpus" fabric) in
  if find "chunk_gpus" plan.header <> Some (Int gpus) then
    wrong "a plan whose chunks name no GPUs";
  let near = match find "inside" fabric with
    | None -> None
    | Some (Obj pairs) -> (
        match find "near" pairs with
        | Some near -> Some (List.map (set_of "near" gpus) (listed "near" near))
        | None -> wrong "near: expected GPUs of each rail")
    | Some _ -> wrong "inside: expected an object" in
  (gpus, near)

(* The units of a plan, whose GPUs lie in the nodes of its chunks. *)
let units_planned gpus (plan : Plan.t) =
  let column name = Plan.column plan.text plan.arrays name in
  let (n, src_gpu), (_, dst_gpu) = (column "src_gpu", column "dst_gpu") in
  let (_, dst), (_, size) = (column "dst", column "size") in
  let width = (Z.to_int gpus + 7) / 8 in
  let targets = match find "targets" plan.arrays with
    | None -> fun i -> Z.shift_left Z.one (Z.to_int (Z.rem (dst_gpu i) gpus))
    | Some { data; _ } ->
        if data.length <> n * width then wrong "targets: expected bits in octets";
        let known = Hashtbl.create 64 in
        fun i ->
          let row = String.sub plan.text (data.at + (i * width)) width in
          match Hashtbl.find_opt known row with
          | Some set -> set
          | None -> let set = row_set (Z.to_int gpus) row in Hashtbl.add known row set; set in
  let rec from i found =
    if i < 0 then found
    else from (i - 1) (unit_of (src_gpu i) (dst i) (size i) (targets i) :: found) in
  from (n - 1) []

let moved record directory =
  absent record "flow" "moved bytes are those of one plan";
  absent record "best" "moved bytes are those of one plan";
  let problem = fields "problem" "kind time tx rx gpus near" "units plan" (get "problem" record) in
  let tx = rows "tx" (get "tx" problem) and rx = rows "rx" (get "rx" problem) in
  let nodes, rails = size_of tx and gpus = gpus_of (get "gpus" problem) in
  let sets = List.map (set_of "near" gpus) (listed "near" (get "near" problem)) in
  let us, own = match (find "units" problem, find "plan" problem) with
    | Some units, None -> (units_listed gpus units, assignment record)
    | None, Some plan ->
        absent record "assignment" "an assignment beside a plan";
        let found = named directory plan in
        let inner_gpus, inner_near = node_planned found in
        let us = units_planned inner_gpus found in
        let inner = { inner_gpus; inner_near; inner_units = us } in
        (us, Some (In_file { found.file with file_inner = Some inner }))
    | _ -> wrong "problem: expected units or a plan" in
  let prices value =
    if kind_of value <> "moved" then wrong "a witness of unknown kind";
    let w = fields "witness moved" "kind unit send recv" "" value in
    let table name = rows name (get name w) in
    ("moved", Of_moves (positive "unit" (get "unit" w), table "send", table "recv")) in
  let time = fraction "time" (get "time" problem) in
  let problem = Units_between (nodes, rails, gpus, tx, rx, sets, us, time) in
  (problem, evidence (get "witness" record) prices, own, None)

let transfer value = match naturals "stages" value with
  | [ from; into; bytes ] -> transfer_of from into bytes
  | _ -> wrong "stages: expected [server, server, bytes]"

let staged record _ =
  let none key = absent record key "a staged schedule has stages" in
  List.iter none [ "assignment"; "flow"; "best" ];
  let problem = fields "problem" "kind demand" "traffic" (get "problem" record) in
  let demand = rows "demand" (get "demand" problem) in
  let line value =
    if kind_of value <> "line" then wrong "a witness of unknown kind";
    let w = fields "witness line" "kind node side" "" value in
    ("line", Of_line (side (get "side" w), natural "node" (get "node" w))) in
  let stage value = List.map transfer (listed "stages" value) in
  let all value = In_stages (List.map stage (listed "stages" value)) in
  let own = Option.map all (find "stages" record) in
  (Stages_of (fst (size_of demand), demand), evidence (get "witness" record) line, own, None)

let rec slots value = match kind_of value with
  | "room" ->
      let w = fields "witness room" "kind experts" "" value in
      Room (naturals "experts" (get "experts" w))
  | "cases" ->
      let w = fields "witness cases" "kind copy with without" "" value in
      let expert, gpu = match naturals "copy" (get "copy" w) with
        | [ expert; gpu ] -> (expert, gpu)
        | _ -> wrong "copy: expected [expert, GPU]" in
      Cases (expert, gpu, slots (get "with" w), slots (get "without" w))
  | _ -> wrong "a witness of unknown kind"

let share = function
  | [ expert; gpu; tokens ] -> share_of expert gpu tokens
  | _ -> wrong "assignment: expected [expert, GPU, tokens]"

let split record _ =
  List.iter (fun key -> absent record key "a split is one plan") [ "flow"; "best" ];
  let problem = fields "problem" "kind counts holds spare" "node" (get "problem" record) in
  let counts = naturals "counts" (get "counts" problem) in
  let experts = Z.of_int (List.length counts) in
  let holds = List.map (set_of "holds" experts) (listed "holds" (get "holds" problem)) in
  let spare = naturals "spare" (get "spare" problem) in
  let node = Option.map (naturals "node") (find "node" problem) in
  let shared rows_ = Shared (List.map share (rows "assignment" rows_)) in
  let own = Option.map shared (find "assignment" record) in
  let checked value = (kind_of value, Of_slots (slots value)) in
  (Tokens_on (counts, holds, spare, node), evidence (get "witness" record) checked, own, None)

let layer record _ =
  List.iter (fun key -> absent record key "a layer's bound is of all plans") [ "assignment"; "flow"; "best" ];
  let problem = fields "problem" "kind tokens slots tx rx token_bytes" "holds" (get "problem" record) in
  let row name from = naturals name (get name from) in
  let tokens = rows "tokens" (get "tokens" problem) in
  let held = Option.fold ~none:[] ~some:(rows "holds") (find "holds" problem) in
  let bytes = natural "token_bytes" (get "token_bytes" problem) in
  let prices value =
    if kind_of value <> "node prices" then wrong "a witness of unknown kind";
    let w = fields "witness node prices" "kind recv send slot" "" value in
    ("node prices", Of_node_prices (row "recv" w, row "send" w, row "slot" w)) in
  let instance = Layer_on (tokens, held, row "slots" problem, row "tx" problem, row "rx" problem, bytes) in
  (instance, evidence (get "witness" record) prices, None, None)

(* ---------------------------------------------------------------- the claim *)

let status = function
  | Str "proved" -> Proved
  | Str "claimed" -> Claimed
  | Str "open" -> Open
  | _ -> wrong "optimum: expected proved, claimed or open"

let truth = function Bool b -> b | _ -> wrong "claim: expected true or false"

(* (bound, value, best, whether this plan is optimal, what is known of the optimum) *)
let claim_of version value =
  let claim, optimal, optimum =
    if version = 1 then
      let c = fields "claim" "bound proved" "value" value in
      let proved = truth (get "proved" c) in
      (c, proved, if proved then Proved else Open)
    else
      let c = fields "claim" "bound optimal optimum" "value best" value in
      (c, truth (get "optimal" c), status (get "optimum" c)) in
  let optional name = Option.map (fraction name) (find name claim) in
  (fraction "bound" (get "bound" claim), optional "value", optional "best", optimal, optimum)

let problems =
  [ ("local", local); ("coupled", coupled); ("fluid", fluid); ("moved", moved); ("staged", staged);
    ("split", split); ("layer", layer) ]

(* (kind of witness, the checker's input) of a parsed certificate; a plan that it names lies in
   [directory]. *)
let read directory value =
  let record = match value with
    | Obj pairs when find "railopt" pairs = Some (Str "certificate") -> pairs
    | _ -> wrong "no certificate" in
  let version = match find "version" record with
    | Some (Int n) when Z.equal n Z.one -> 1
    | Some (Int n) when Z.equal n (Z.of_int 2) -> 2
    | _ -> wrong "expected a certificate of version 1 or 2" in
  let more = if version = 2 then "assignment flow best stages" else "assignment flow" in
  let record = fields "certificate" "railopt version problem claim witness" more (Obj record) in
  let bound, value, best_value, optimal, optimum = claim_of version (get "claim" record) in
  let kind = kind_of (get "problem" record) in
  let reader = match List.assoc_opt kind problems with
    | Some reader -> reader
    | None -> wrong "problem: of unknown kind" in
  if kind <> "staged" then absent record "stages" "stages of another problem than a staged one";
  (match get "problem" record with Obj problem -> traffic problem | _ -> ());
  let problem, (kind, because), own, other = reader record directory in
  (kind, { problem; because; own; other; bound; value; best_value; optimal; optimum })

(* ---------------------------------------------------------------- counterexamples *)

let is_counterexample = function
  | Obj pairs -> find "railopt" pairs = Some (Str "counterexample")
  | _ -> false

(* Whether a claim about plans is refuted: its bad plan is read as that of a certificate of the same
   problem. *)
let by_plan directory r bad_value least_value allowed =
  let best = match get "best" r with
    | Obj pairs -> pairs
    | _ -> wrong "best: expected a certificate" in
  let shared = List.filter (fun (k, _) -> not (List.mem k [ "assignment"; "flow"; "best" ])) best in
  let attained = match get "bad" r with
    | Obj pairs -> List.filter (fun (k, _) -> k = "assignment" || k = "flow") pairs
    | _ -> wrong "bad: expected a plan" in
  let _, truth = read directory (Obj best) in
  let _, worse = read directory (Obj (shared @ attained)) in
  let bad = match worse.own with
    | Some bad -> bad
    | None -> wrong "bad: expected an assignment or a flow" in
  refutation_verdict { truth; bad; bad_value; least_value; allowed }

(* Whether FAST's phases on hot tiles refute a claim. *)
let by_fast _ r =
  let b = fields "best" "servers gpus scale_up scale_out stages" "local" (get "best" r) in
  let number name = natural name (get name b) in
  let inside = match find "local" b with Some value -> natural "local" value | None -> Z.zero in
  fast_verdict (number "gpus") (number "scale_up") (number "scale_out") inside
    (naturals "stages" (get "stages" b))

(* Whether the channels of one hot GPU refute a claim. *)
let by_flow _ r =
  let b = fields "best" "rails scale_up nic" "" (get "best" r) in
  let bad = fields "bad" "direct through_peers" "" (get "bad" r) in
  let number name = natural name (get name b) in
  let peers = List.map (fraction "through_peers") (listed "peers" (get "through_peers" bad)) in
  flow_verdict (number "rails") (number "scale_up") (number "nic")
    (fraction "direct" (get "direct" bad)) peers

type disproof = { of_what : string; holds : bool; optimum : string;
                  value : frac; bound : frac; best : frac; allowed : frac }

(* What a counterexample refutes, whether it does, and its figures. *)
let disproof directory value =
  let keys = "railopt version theorem claim kind best bad where value optimum at_most" in
  let r = fields "counterexample" keys "" value in
  if get "version" r <> Int Z.one then wrong "expected a counterexample of version 1";
  let number name = fraction name (get name r) in
  let value, least, allowed = (number "value", number "optimum", number "at_most") in
  let refutes, optimum, bound, best = match get "kind" r with
    | Str "plan" -> (by_plan, "known", least, least)
    | Str "fast" -> (by_fast, "open", least, value)
    | Str "flow" -> (by_flow, "known", value, value)
    | _ -> wrong "a counterexample of unknown kind" in
  let theorem = match get "theorem" r with
    | Str text -> text
    | _ -> wrong "theorem: expected a text" in
  { of_what = "counterexample of " ^ theorem; holds = refutes directory r value least allowed;
    optimum; value; bound; best; allowed }
