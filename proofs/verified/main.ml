(* railopt-verified [--json] [--seconds S] FILE...: what the extracted checker says of certificates,
   plans and counterexamples. *)

open Checker

let usage = "usage: railopt-verified [--json] [--seconds S] FILE...\n\
  Checks certificates (.json) and plans (.npz) of railopt with a checker that is proved in Coq.\n\
  exit codes: 0 every file holds, 4 some file does not, 1 some file can't be read"

let no_traffic _ =
  prerr_endline "railopt-verified: --traffic is not read here, and nothing was checked: run\n  \
    railopt check --verified --traffic TRAFFIC FILE...\n\
    which asks this program about each file, and holds it against the traffic in Python";
  exit 1

type said = {
  ok : bool; optimal : bool; optimum : string; kind : string; message : string;
  content : string;  (* digest of what was read: a plan's own, or that of a certificate's bytes *)
  bound : frac option; value : frac option; best : frac option }

let text_of (p, q) = Q.to_string (Q.make p q)

let failed kind message =
  { ok = false; optimal = false; optimum = "open"; kind; message; content = "";
    bound = None; value = None; best = None }

let why = function
  | Not_formed -> "the problem is not formed as it should be"
  | Not_shown -> "the witness does not show the bound"
  | Not_its_value -> "what its plan, assignment or flow takes is not the value claimed"
  | Not_its_best -> "what its best plan takes is not the value claimed of it"
  | Below_bound -> "the value is below the bound"
  | Worse_best -> "the best plan is worse than this one"
  | Not_optimal -> "it claims to be optimal, but a value and a checked bound do not meet"
  | Not_optimum -> "it claims more of the optimum than is known"

let message checked optimal optimum =
  if optimal then "value and bound meet"
  else if optimum = Proved then "the best plan meets the bound"
  else if checked then "the bound holds"
  else "nothing is proved"

let word = function Proved -> "known" | Claimed -> "claimed" | Open -> "open"

let certificate directory json =
  let kind, c = Certificate.read directory json in
  let best = match c.other with Some _ -> c.best_value | None -> c.value in
  match verdict c with
  | Accepted (checked, optimal, optimum) ->
      { ok = true; optimal; optimum = word optimum; kind; message = message checked optimal optimum;
        content = ""; bound = Some c.bound; value = c.value; best }
  | Rejected fault -> { (failed kind (why fault)) with bound = Some c.bound }

let counterexample directory json =
  let { Certificate.of_what; holds; optimum; value; bound; best; allowed } =
    Certificate.disproof directory json in
  if holds then
    { (failed of_what (text_of value ^ " where the claim allows " ^ text_of allowed)) with
      ok = true; optimum; bound = Some bound; value = Some value; best = Some best }
  else failed of_what "it does not show a plan above what the claim allows, and the optimum"

let plan path =
  let { Plan.file; digest; _ } = Plan.read path in
  let nodes, rails = Certificate.size_of file.file_tx in
  if plan_verdict nodes rails file then
    let count = List.length file.file_chunks in
    let said = Printf.sprintf "%d chunks on live rails, digest %s" count digest in
    { (failed "plan" said) with
      ok = true; content = digest; value = Some file.file_time; best = Some file.file_time }
  else failed "plan" "it claims other loads or makespan than its chunks have"

(* What is said of a file, or why it can't be read. *)
let check path =
  match Plan.read_file path 2 with
  | "PK" -> (
      match plan path with
      | said -> Ok said
      | exception Plan.Wrong why -> Ok (failed "plan" why)
      | exception Plan.Unreadable why -> Error why)
  | _ -> (
      let text = Plan.read_file path Json.memory in
      match Json.parsed text with
      | exception Json.Bad why -> Error ("neither a certificate (JSON) nor a plan (.npz): " ^ why)
      | json -> (
          let other = Certificate.is_counterexample json in
          match (if other then counterexample else certificate) (Filename.dirname path) json with
          | said -> Ok { said with content = Blake2b.of_string text }
          | exception (Plan.Wrong why | Plan.Unreadable why | Sys_error why) ->
              Ok (failed "certificate" why)))
  | exception Sys_error why -> Error why
  | exception End_of_file -> Error "it ends early"

exception Too_long of string

(* No file makes this program run long or wide. *)
let limit_memory () =
  let words = (4 * 1024 * 1024 * 1024) / 8 in
  let look () =
    if (Gc.quick_stat ()).heap_words > words then
      raise (Too_long "refused: the check needs more than 4 GiB") in
  ignore (Gc.create_alarm look)

let limit_time seconds =
  let text = Printf.sprintf "refused: the check needs more than %d s" seconds in
  let stop _ = raise (Too_long text) in
  Sys.set_signal Sys.sigalrm (Sys.Signal_handle stop);
  ignore (Unix.alarm seconds)

let limited seconds path =
  limit_time seconds;
  let said = try check path with
    | Too_long why -> Ok (failed "certificate" why)
    | Stack_overflow -> ignore (Unix.alarm 0); raise Stack_overflow  (* an alarm outlives exec *)
    | error -> Ok (failed "certificate" ("refused: " ^ Printexc.to_string error)) in
  ignore (Unix.alarm 0);
  said

let json path said =
  let number = function None -> Json.Null | Some x -> Json.Str (text_of x) in
  let pairs = match said with
    | Error why -> [ ("error", Json.Str why) ]
    | Ok s ->
        [ ("ok", Json.Bool s.ok); ("optimal", Bool s.optimal); ("optimum", Str s.optimum);
          ("kind", Str s.kind); ("message", Str s.message); ("content", Str s.content);
          ("bound", number s.bound); ("value", number s.value); ("best", number s.best) ] in
  Json.dumped (Obj (("file", Json.Str path) :: pairs))

let line path = function
  | Error why -> Printf.sprintf "%s: unreadable: %s" (String.escaped path) (String.escaped why)
  | Ok s ->
      let word = if s.optimal then "optimal" else if s.ok then "ok" else "FAILED" in
      let number name = function None -> "" | Some x -> Printf.sprintf ", %s %s" name (text_of x) in
      Printf.sprintf "%s: %s (%s%s%s, optimum %s): %s" (String.escaped path) word
        (String.escaped s.kind) (number "bound" s.bound) (number "value" s.value) s.optimum
        (String.escaped s.message)

(* Deep recursion needs a stack that the shell has to grant: run again, for the files left, with as
   much as there may be.  The variable holds the exit code of the files before. *)
let variable = "RAILOPT_VERIFIED_STACK"

let with_more_stack code options files =
  Unix.putenv variable (string_of_int code);
  let raise_limit = "ulimit -s unlimited 2>/dev/null || ulimit -s $(ulimit -H -s) 2>/dev/null; " in
  let script = raise_limit ^ "exec \"$0\" \"$@\"" in
  flush stdout;
  let line = [ "/bin/sh"; "-c"; script; Sys.executable_name ] @ options @ files in
  Unix.execv "/bin/sh" (Array.of_list line)

let () =
  let as_json = ref false and seconds = ref 60 and files = ref [] in
  let options = [ ("--json", Arg.Set as_json, " one JSON object a file");
                  ("--seconds", Arg.Set_int seconds, "S refuse a file that takes longer (60)");
                  ("--traffic", Arg.String no_traffic, "TRAFFIC refused: railopt check does it") ] in
  Arg.parse (Arg.align options) (fun file -> files := file :: !files) usage;
  if !files = [] || !seconds < 1 then (prerr_endline usage; exit 1);
  Gc.set { (Gc.get ()) with minor_heap_size = 1 lsl 22; space_overhead = 400 };
  limit_memory ();
  let before = Sys.getenv_opt variable in
  let code = ref (match before with Some code -> int_of_string code | None -> 0) in
  let shared = [ "--seconds"; string_of_int !seconds ] @ if !as_json then [ "--json" ] else [] in
  let rec all = function
    | [] -> ()
    | path :: rest as left ->
        let said = try limited !seconds path with
          | Stack_overflow when before = None -> with_more_stack !code shared left
          | Stack_overflow -> Ok (failed "certificate" "refused: too deep") in
        (match said with
        | Ok { ok = true; _ } -> ()
        | Ok _ -> code := max !code 4
        | Error _ -> code := max !code 1);
        print_endline (if !as_json then json path said else line path said);
        all rest in
  all (List.rev !files);
  exit !code
