// Operators whose closures, if they have any, are this module's own and capture nothing but what the operator was given. They can
// be handed to a task where their upstreams and the values can.

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
