import StreamSources

extension SourceDriver {
  /// A source of a test.
  /// - Parameter change: what it gets besides the thread and the report.
  func source(
    on thread: SourceThread, report: @escaping @Sendable (SourceReport) -> Void = { _ in },
    with change: (inout SourceContext) -> Void = { _ in }
  ) -> Source<Self> {
    var context = SourceContext(on: thread, report: report)
    change(&context)
    return Source(self, in: context)
  }
}
