# METADATA
# title: The question that Arbiter asks
# description: |
#   Collects what data.policy says, and nothing else. What is undefined is
#   absent: package policies (Go) then allows only when allow is true, deny has
#   nothing in it and everything has the type that docs/policies.md gives.
package arbiter

decision.allow := data.policy.allow

decision.deny := data.policy.deny

decision.hide := data.policy.hide

decision.scopes_needed := data.policy.scopes_needed

decision.headers := data.policy.headers

decision.limits := data.policy.limits
