// Command karpenter is Karpenter with its provider kwok, whose NodePools can be out of capacity as those of a cloud are.
//
// The annotation testbed.spotwright.dev/out-of-capacity of a NodePool names the capacity type that cannot be bought there, such
// as spot. The first order of it is refused. After that the offering counts as unavailable for three minutes, as the provider of
// AWS does it, or until the annotation is gone. How long a node takes to boot is a field of the KWOKNodeClass.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

const (
	outOfCapacity = "testbed.spotwright.dev/out-of-capacity"
	remembered    = 3 * time.Minute
)

// market is a provider that refuses what the annotations of NodePools say.
type market struct {
	cloudprovider.CloudProvider
	client  client.Client
	lock    sync.Mutex
	refused map[string]time.Time // "UID of a NodePool/capacity type" to the time of the refusal
}

// Create orders a node, or returns the error for a lack of capacity.
func (m *market) Create(ctx context.Context, claim *v1.NodeClaim) (*v1.NodeClaim, error) {
	pool := &v1.NodePool{}
	if err := m.client.Get(ctx, types.NamespacedName{Name: claim.Labels[v1.NodePoolLabelKey]}, pool); err != nil {
		return nil, fmt.Errorf("reading the NodePool of a NodeClaim: %w", err)
	}
	missing := pool.Annotations[outOfCapacity]
	capacity := scheduling.NewNodeSelectorRequirementsWithMinValues(claim.Spec.Requirements...).Get(v1.CapacityTypeLabelKey)
	if missing == "" || !capacity.Has(missing) {
		return m.CloudProvider.Create(ctx, claim)
	}
	if m.isUnavailable(pool) && capacity.Len() > 1 {
		claim = claim.DeepCopy()
		claim.Spec.Requirements = append(claim.Spec.Requirements, v1.NodeSelectorRequirementWithMinValues{
			Key: v1.CapacityTypeLabelKey, Operator: corev1.NodeSelectorOpNotIn, Values: []string{missing},
		})
		return m.CloudProvider.Create(ctx, claim)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.refused[string(pool.UID)+"/"+missing] = time.Now()
	return nil, cloudprovider.NewInsufficientCapacityError(fmt.Errorf("NodePool %s has no %s capacity", pool.Name, missing))
}

// GetInstanceTypes returns all instance types; what was refused is unavailable.
func (m *market) GetInstanceTypes(ctx context.Context, pool *v1.NodePool) ([]*cloudprovider.InstanceType, error) {
	all, err := m.CloudProvider.GetInstanceTypes(ctx, pool)
	if err != nil || !m.isUnavailable(pool) {
		return all, err
	}
	left := make([]*cloudprovider.InstanceType, 0, len(all))
	for _, one := range all {
		one = one.DeepCopy()
		for _, offering := range one.Offerings {
			if offering.CapacityType() == pool.Annotations[outOfCapacity] {
				offering.Available = false
			}
		}
		left = append(left, one)
	}
	return left, nil
}

func (m *market) isUnavailable(pool *v1.NodePool) bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	since, refused := m.refused[string(pool.UID)+"/"+pool.Annotations[outOfCapacity]]
	return refused && time.Since(since) < remembered
}

func main() {
	ctx, op := operator.NewOperator()
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		log.FromContext(ctx).Error(err, "no instance types")
	}
	provider := &market{
		CloudProvider: kwok.NewCloudProvider(ctx, op.GetClient(), instanceTypes),
		client:        op.GetClient(),
		refused:       map[string]time.Time{},
	}
	overlaid := overlay.Decorate(provider, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), overlaid)
	all := controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, overlaid, provider, cluster, op.InstanceTypeStore)
	op.WithControllers(ctx, all...).Start(ctx)
}
