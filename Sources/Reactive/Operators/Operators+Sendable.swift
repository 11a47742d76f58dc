// Operators can be handed to a task where their upstreams and the values can: closures of users are `Sendable`, and this module's
// own capture nothing but what the operator was given.

extension Publishers.AllSatisfy: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Breakpoint: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Buffer: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.CompactMap: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Comparison: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.ContainsWhere: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.DropWhile: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Filter: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.FirstWhere: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.HandleEvents: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.LastWhere: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Map: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.MapError: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.PrefixWhile: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.RemoveDuplicates: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryAllSatisfy: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryCompactMap: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryComparison: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryContainsWhere: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryDropWhile: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryFilter: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryFirstWhere: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryLastWhere: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryMap: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryPrefixWhile: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryRemoveDuplicates: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Reduce: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Output: Sendable {}
extension Publishers.Scan: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Output: Sendable {}
extension Publishers.TryReduce: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Output: Sendable {}
extension Publishers.TryScan: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Output: Sendable {}
extension Publishers.Catch: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.TryCatch: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.FlatMap: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Timeout: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Context: Sendable {}
extension Publishers.Collect: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.CollectByCount: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Contains: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Count: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Drop: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.First: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.IgnoreOutput: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Last: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.MapKeyPath: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.MapKeyPath2: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.MapKeyPath3: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Output: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.ReplaceEmpty: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.ReplaceError: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.Retry: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.SetFailureType: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.AssertNoFailure: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.AsSingle: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.MergeMany: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
extension Publishers.SwitchToLatest: @unchecked Sendable where Upstream: Sendable, P: Sendable, P.Output: Sendable {}
extension Publishers.Concatenate: @unchecked Sendable
where Prefix: Sendable, Suffix: Sendable, Prefix.Output: Sendable {}
extension Publishers.PrefixUntilOutput: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Other: Sendable {}
extension Publishers.DropUntilOutput: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Other: Sendable {}
extension Publishers.CombineLatest: @unchecked Sendable
where A: Sendable, A.Output: Sendable, B: Sendable, B.Output: Sendable {}
extension Publishers.Zip: @unchecked Sendable
where A: Sendable, A.Output: Sendable, B: Sendable, B.Output: Sendable {}
extension Publishers.CombineLatest3: @unchecked Sendable
where A: Sendable, A.Output: Sendable, B: Sendable, B.Output: Sendable, C: Sendable, C.Output: Sendable {}
extension Publishers.Zip3: @unchecked Sendable
where A: Sendable, A.Output: Sendable, B: Sendable, B.Output: Sendable, C: Sendable, C.Output: Sendable {}
extension Publishers.CombineLatest4: @unchecked Sendable
where
  A: Sendable, A.Output: Sendable, B: Sendable, B.Output: Sendable, C: Sendable, C.Output: Sendable, D: Sendable,
  D.Output: Sendable
{}
extension Publishers.Zip4: @unchecked Sendable
where
  A: Sendable, A.Output: Sendable, B: Sendable, B.Output: Sendable, C: Sendable, C.Output: Sendable, D: Sendable,
  D.Output: Sendable
{}
extension Publishers.Merge: @unchecked Sendable
where A.Output: Sendable, A: Sendable, B: Sendable {}
extension Publishers.Merge3: @unchecked Sendable
where A.Output: Sendable, A: Sendable, B: Sendable, C: Sendable {}
extension Publishers.Merge4: @unchecked Sendable
where A.Output: Sendable, A: Sendable, B: Sendable, C: Sendable, D: Sendable {}
extension Publishers.Merge5: @unchecked Sendable
where A.Output: Sendable, A: Sendable, B: Sendable, C: Sendable, D: Sendable, E: Sendable {}
extension Publishers.Merge6: @unchecked Sendable
where A.Output: Sendable, A: Sendable, B: Sendable, C: Sendable, D: Sendable, E: Sendable, F: Sendable {}
extension Publishers.Merge7: @unchecked Sendable
where A.Output: Sendable, A: Sendable, B: Sendable, C: Sendable, D: Sendable, E: Sendable, F: Sendable, G: Sendable {}
extension Publishers.Merge8: @unchecked Sendable
where
  A.Output: Sendable, A: Sendable, B: Sendable, C: Sendable, D: Sendable, E: Sendable, F: Sendable, G: Sendable,
  H: Sendable
{}
extension Publishers.CollectByTime: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Context: Sendable {}
extension Publishers.Debounce: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Context: Sendable {}
extension Publishers.Throttle: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Context: Sendable {}
extension Publishers.ReceiveOn: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Context: Sendable {}
extension Publishers.Delay: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Context: Sendable {}
extension Publishers.SubscribeOn: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Context: Sendable {}
extension Publishers.MeasureInterval: @unchecked Sendable
where Upstream: Sendable, Upstream.Output: Sendable, Context: Sendable {}
extension Publishers.MakeConnectable: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}
